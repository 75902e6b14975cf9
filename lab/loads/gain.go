package loads

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"proffer/lab/application"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/trace"
	"proffer/policy"
	"proffer/topo"
)

// Gain is the worth of hunting on real programs, on real CPU time under quotas: the p90 of
// `single`, of a hunting policy by the default load, and of the same by the true number of
// requests in progress, which is on a load page. Each request has a connection of its own.
type Gain struct {
	Programs []string // by name; none means all that speak HTTP
	Policy   string   // the hunting policy
	Servers  int
	Share    float64       // of a core, the quota of a server
	Mean     time.Duration // CPU time that a request asks for
	Load     float64       // offered, of the farm's capacity
	For      time.Duration // of a run's arrivals
	Seed     uint64
	Proffer  string // path of the proffer binary
	Lab      string // path of the proffer-lab binary
}

// GainPrograms are the programs that speak HTTP and can be asked for CPU time.
func GainPrograms() []string {
	return []string{"nginx-h1", "nginx-h2", "apache-php", "apache-event", "php-fpm", "go-h2", "go-grpc", "node", "gunicorn", "java"}
}

// gainWay is how the servers of a run are chosen, and the load measure of their agents.
type gainWay struct {
	name    string
	policy  string
	measure topo.Measure
}

func (e Gain) ways() []gainWay {
	return []gainWay{
		{"single", "single", topo.Work},
		{"default", e.Policy, topo.Work},
		{"true", e.Policy, topo.Page},
	}
}

// A farm is warmed up and its capacity measured by runs of half its load.
const (
	warmFor  = 3 * time.Second
	warmLoad = 0.5
	gainTick = 10 * time.Millisecond // over which a quota counts
)

// Check returns an error for settings that cannot be run.
func (e Gain) Check() error {
	for _, name := range e.Programs {
		if !slices.Contains(GainPrograms(), name) {
			return fmt.Errorf("--programs: unknown program %q: want %s", name, strings.Join(GainPrograms(), ", "))
		}
	}
	p, err := policy.Parse(e.Policy)
	switch {
	case err != nil:
		return fmt.Errorf("--policy: %w", err)
	case p.Dispatch != topo.Hunt:
		return fmt.Errorf("--policy %s: want a hunting policy, such as hunt:static:2", e.Policy)
	case e.Servers < 2 || e.Servers > testbed.MaxServers:
		return fmt.Errorf("--servers %d: want 2 to %d", e.Servers, testbed.MaxServers)
	case !(e.Share >= 0.1 && e.Share <= 1):
		return fmt.Errorf("--share %v: want 0.1 to 1 of a core", e.Share)
	case e.Mean < time.Millisecond || e.Mean > time.Second:
		return fmt.Errorf("--mean %v: want 1ms to 1s", e.Mean)
	case !(e.Load > 0 && e.Load < 1):
		return fmt.Errorf("--load %v: want more than 0, less than 1", e.Load)
	case e.For < time.Second || e.For > 10*time.Minute:
		return fmt.Errorf("--for %v: want 1s to 10m", e.For)
	}
	return nil
}

// gainRun is a program on its farm.
type gainRun struct {
	Gain
	program *application.Program
	bed     *testbed.Bed
	sites   []*application.Site // a server each
}

// Run measures each program.
func (e Gain) Run(ctx context.Context, show func(farmrun.Step)) (_ *GainReport, err error) {
	names := e.Programs
	if len(names) == 0 {
		names = GainPrograms()
	}
	programs, err := application.Named(names)
	if err != nil {
		return nil, err
	}
	var lacking []error
	for _, p := range programs {
		lacking = append(lacking, p.Missing())
	}
	if err := errors.Join(lacking...); err != nil {
		return nil, err
	}
	farmrun.Prefer()
	report := &GainReport{experiment: e}
	p := &farmrun.Pace{Began: time.Now(), Total: len(programs) * (1 + len(e.ways())), Guess: e.For + farmrun.AroundRun, Show: show}
	for _, program := range programs {
		if err := e.measure(ctx, program, p, report); err != nil {
			return nil, fmt.Errorf("%s: %w", program.Name, err)
		}
	}
	return report, nil
}

// measure builds a farm of a program, and makes a run each way.
func (e Gain) measure(ctx context.Context, program *application.Program, p *farmrun.Pace, report *GainReport) (err error) {
	p.Begin(program.Name + ": capacity")
	bed, err := testbed.Up(ctx, testbed.Config{Servers: e.Servers})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Close()) }() // and all that runs in it
	r := &gainRun{Gain: e, program: program, bed: bed}
	for _, n := range bed.Servers {
		if err := r.serve(ctx, n); err != nil {
			return err
		}
	}
	capacity, err := r.capacity(ctx)
	if err != nil {
		return err
	}
	p.End(program.Name + ": capacity")
	arrivals := trace.Poisson(e.Seed, int(e.Load*capacity*e.For.Seconds()), e.Load*capacity, e.Mean)
	for _, w := range e.ways() {
		p.Begin(program.Name + ": " + w.name)
		run, err := r.run(ctx, w, arrivals)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		report.add(program.Name, w, run, capacity)
		p.End(program.Name + ": " + w.name)
	}
	return nil
}

// serve starts the program on a server, within its quota.
func (r *gainRun) serve(ctx context.Context, n *testbed.Node) error {
	quota, err := n.Quota()
	if err != nil {
		return err
	}
	site := &application.Site{
		Client: n, Server: n, At: netip.AddrPortFrom(r.bed.VIP, testbed.Port), // its first client is the server itself
		Dir: filepath.Join(r.bed.Dir, r.program.Name+"-"+n.Name), Lab: r.Lab, Quota: quota,
	}
	if err := os.Mkdir(site.Dir, 0o755); err != nil {
		return fmt.Errorf("make its folder: %w", err)
	}
	if err := r.program.Start(ctx, site); err != nil {
		return err
	}
	if err := quota.Set(r.Share, gainTick); err != nil {
		return err
	}
	site.Client = r.bed.Client
	r.sites = append(r.sites, site)
	return nil
}

// capacity is how many requests a second the farm can serve: by the CPU time that a request
// takes, in a second run, as the first one warms the program up.
func (r *gainRun) capacity(ctx context.Context) (float64, error) {
	rate := warmLoad * float64(r.Servers) * r.Share / r.Mean.Seconds()
	arrivals := trace.Poisson(r.Seed, int(rate*warmFor.Seconds()), rate, r.Mean)
	each := 0.0
	for range 2 {
		run, err := r.run(ctx, r.ways()[0], arrivals)
		if err != nil {
			return 0, fmt.Errorf("capacity: %w", err)
		}
		if len(run.latencies) == 0 || run.used == 0 {
			return 0, errors.New("capacity: no request was answered")
		}
		each = run.used.Seconds() / float64(len(run.latencies))
	}
	return float64(r.Servers) * r.Share / each, nil
}
