// Package loads holds the loads that an agent reads to those of real programs, and measures what
// the better of them gain.
package loads

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"proffer/lab/application"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

// Experiment holds the load that an agent reads to the truth: real programs, in turn, on a
// server behind an LB and an agent without any setting for them. Clients ask requests that take
// CPU time, that wait, or either; their number goes through four levels. A hundred times a second
// the requests in progress are counted at the clients and, beside that, each signal is read.
type Experiment struct {
	Programs []string      // by name; none means all
	Each     time.Duration // how long a level of load takes
	Idle     int           // idle connections
	Quick    bool          // levels of quickLevel
	Seed     uint64
	Proffer  string // path of the proffer binary
	Lab      string // path of the proffer-lab binary
}

const (
	quickLevel = 500 * time.Millisecond
	// lookEvery is the time between two samples.
	lookEvery = 10 * time.Millisecond
	// dnsPort is that of the UDP service.
	dnsPort = 53
	// wordPort is that of a service without connections: its agent hands a load page over, on which
	// programs write their own word.
	wordPort = 81
)

// levels are the numbers of clients. Each thinks between two requests.
var levels = []int{2, 4, 8, 16}

// Check returns an error for settings that cannot be run.
func (e Experiment) Check() error {
	_, err := application.Named(e.Programs)
	switch {
	case err != nil:
		return fmt.Errorf("--programs: %w", err)
	case e.Each < 200*time.Millisecond || e.Each > time.Minute:
		return fmt.Errorf("--each %v: want 200ms to 1m", e.Each)
	case e.Idle < 0 || e.Idle > 1000:
		return fmt.Errorf("--idle %d: want 0 to 1000", e.Idle)
	}
	return nil
}

// each is how long a level of load takes.
func (e Experiment) each() time.Duration {
	if e.Quick {
		return quickLevel
	}
	return e.Each
}

// settle is how long idle connections have to become idle: in a long run, past a recount.
func (e Experiment) settle() time.Duration { return min(e.each(), 6*time.Second) }

// Run measures each program, and each kind of requests.
func (e Experiment) Run(ctx context.Context, show func(farmrun.Step)) (_ *Report, err error) {
	programs, err := application.Named(e.Programs)
	if err != nil {
		return nil, err
	}
	var lacking []error
	p := &farmrun.Pace{Began: time.Now(), Guess: time.Duration(len(levels))*e.each() + time.Second, Show: show}
	for _, program := range programs {
		lacking = append(lacking, program.Missing())
		p.Total += 1 + len(program.Kinds())
	}
	if err := errors.Join(lacking...); err != nil {
		return nil, err
	}
	farmrun.Prefer()
	p.Begin("building a farm")
	bed, err := testbed.Up(ctx, testbed.Config{Servers: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }() // and all that runs in it
	farm, err := farmrun.Start(ctx, bed, e.settings(loadPage(bed)))
	if err != nil {
		return nil, err
	}
	r := &Report{experiment: e}
	for _, program := range programs {
		if err := e.judge(ctx, farm, program, p, r); err != nil {
			return nil, fmt.Errorf("%s: %w", program.Name, err)
		}
	}
	return r, nil
}

// loadPage is the path of the socket at which the agent hands its load page over.
func loadPage(bed *testbed.Bed) string { return filepath.Join(bed.Dir, "page.sock") }

// settings: a service over TCP and one over UDP, with the default load, and the page.
func (e Experiment) settings(page string) farmrun.Settings {
	return farmrun.Settings{
		Policy:   topo.Policy{Dispatch: topo.Hunt, Acceptance: topo.Always},
		Measure:  topo.Work,
		Workers:  32,
		Cores:    2,
		Programs: e.Proffer,
		LB: func(lb *topo.LB) {
			dns := lb.Services[0]
			dns.Name, dns.VIP.Port, dns.VIP.Protocol = "dns", dnsPort, topo.UDP
			lb.Services = append(lb.Services, dns)
		},
		Agent: func(_ *testbed.Node, a *topo.Agent) {
			dns, word := a.Services[0], a.Services[0]
			dns.Name, dns.VIP.Port, dns.VIP.Protocol = "dns", dnsPort, topo.UDP
			word.Name, word.VIP.Port, word.Measure, word.Page = "word", wordPort, topo.Page, "unix:"+page
			a.Services = append(a.Services, dns, word)
		},
	}
}

// trialOf is a program on the farm.
type trialOf struct {
	Experiment
	program *application.Program
	site    *application.Site
	reader  *signalReader
}

// judge runs a program, and its clients.
func (e Experiment) judge(ctx context.Context, farm *farmrun.Farm, program *application.Program, p *farmrun.Pace, r *Report) (err error) {
	p.Begin(program.Name)
	bed := farm.Bed
	site := &application.Site{
		Client: bed.Client, Server: bed.Servers[0], At: netip.AddrPortFrom(bed.VIP, testbed.Port),
		Dir: filepath.Join(bed.Dir, program.Name), Lab: e.Lab, Page: loadPage(bed),
	}
	if program.UDP {
		site.At = netip.AddrPortFrom(bed.VIP, dnsPort)
	}
	if err := os.Mkdir(site.Dir, 0o755); err != nil {
		return fmt.Errorf("make its folder: %w", err)
	}
	defer func() { err = errors.Join(err, site.Stop()) }()
	if err := program.Start(ctx, site); err != nil {
		return err
	}
	t := &trialOf{Experiment: e, program: program, site: site}
	if t.reader, err = newSignalReader(ctx, farm, program, site); err != nil {
		return err
	}
	defer t.reader.close()
	return t.measure(ctx, p, r)
}

// measure takes the samples with idle connections alone, and then those of each kind of requests
// beside them.
func (t *trialOf) measure(ctx context.Context, p *farmrun.Pace, r *Report) (err error) {
	name := t.program.Name
	conns, err := t.open(ctx, t.Idle)
	defer func() { err = errors.Join(err, closeAll(conns)) }()
	var idle []float64
	if err == nil {
		idle, err = t.idle(ctx, conns)
	}
	if err != nil {
		return fmt.Errorf("idle connections: %w", err)
	}
	p.End(name + ": idle")
	for _, kind := range t.program.Kinds() {
		p.Begin(fmt.Sprintf("%s: %s", name, kind))
		samples, err := t.ask(ctx, kind)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		r.add(t.program, kind, t.reader.names, samples, idle)
		p.End(fmt.Sprintf("%s: %s", name, kind))
	}
	return nil
}
