// Package experiment runs the real daemons on a testbed farm under load and
// reports what they did: the papers' experiments, each by its name.
package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/api"
	"proffer/config"
	"proffer/load"
	"proffer/testbed"
	"proffer/topo"
)

const (
	// Backlog is the papers' listen backlog.
	Backlog = 128
	// readyWithin bounds the start of a daemon.
	readyWithin = 20 * time.Second
)

// candidateKey is the key of every testbed farm: fixed, so that a seed gives
// the same lists every time.
var candidateKey = topo.Key{0x50, 0x72, 0x6f, 0x66, 0x66, 0x65, 0x72, 0x20, 0x74, 0x65, 0x73, 0x74, 0x62, 0x65, 0x64, 0x2e}

// Settings say how a farm's service is dispatched and accepted.
type Settings struct {
	Policy   topo.Policy
	Choices  int // of hunt; 0 means 2
	Workers  int
	Cores    int
	Signal   topo.Signal
	Page     func(server string) string // SharedMemory: the path of each server's page
	OnFull   topo.OnFull
	Programs string // path of the proffer binary
}

// Farm is a testbed with the daemons running on it.
type Farm struct {
	Bed      *testbed.Bed
	Service  topo.Service
	settings Settings
	daemons  []*testbed.Process
}

// Start runs the LB and an agent a server on bed, and returns when all answer.
func Start(ctx context.Context, bed *testbed.Bed, s Settings) (*Farm, error) {
	f := &Farm{Bed: bed, settings: s, Service: service(bed, s)}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	err := f.startAll(bed)
	if err == nil {
		err = f.ready(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

// service describes the bed's service as the LB will see it.
func service(bed *testbed.Bed, s Settings) topo.Service {
	svc := topo.Service{
		Name:     "web",
		VIP:      topo.VIP{Addr: bed.VIP, Port: testbed.Port},
		Dispatch: s.Policy.Dispatch,
	}
	if s.Policy.Dispatch == topo.Hunt {
		svc.Choices = max(s.Choices, 2)
	}
	for _, n := range bed.Servers {
		svc.Servers = append(svc.Servers, topo.Server{Name: n.Name, Locator: n.Locator, Weight: 1})
	}
	return svc
}

func (f *Farm) startAll(bed *testbed.Bed) error {
	flows := topo.FlowTable{Entries: 65536, Idle: 5 * time.Minute, Linger: 10 * time.Second}
	for _, n := range bed.LBs {
		lb := &topo.LB{Node: f.node(n), CandidateKey: candidateKey, Flows: flows, Services: []topo.Service{f.Service}}
		if err := f.start(n, "lb", config.MarshalLB(lb)); err != nil {
			return err
		}
	}
	flows.Entries = 8192
	for _, n := range bed.Servers {
		agent := &topo.Agent{Node: f.node(n), Flows: flows, Services: []topo.Offering{f.offering(n)}}
		if err := f.start(n, "agent", config.MarshalAgent(agent)); err != nil {
			return err
		}
	}
	return nil
}

func (f *Farm) node(n *testbed.Node) topo.Node {
	return topo.Node{Name: n.Name, Locator: n.Locator, Interface: "eth0", Control: f.control(n)}
}

func (f *Farm) control(n *testbed.Node) string {
	return filepath.Join(f.Bed.Dir, n.Name+".sock")
}

func (f *Farm) offering(n *testbed.Node) topo.Offering {
	s := f.settings
	o := topo.Offering{
		Name:       f.Service.Name,
		VIP:        f.Service.VIP,
		Acceptance: s.Policy.Acceptance,
		Threshold:  s.Policy.Threshold,
		Workers:    s.Workers,
		Cores:      s.Cores,
		Signal:     s.Signal,
		OnFull:     s.OnFull,
	}
	if o.Acceptance == topo.Dynamic { // 6LB §VI: window 50, ε = 0.1
		o.Threshold, o.Window, o.Epsilon = 1, 50, 0.1
	}
	if o.Signal == topo.SharedMemory {
		o.Page = s.Page(n.Name)
	}
	return o
}

// start runs one daemon as an operator would.
func (f *Farm) start(n *testbed.Node, role string, configuration []byte) error {
	path := filepath.Join(f.Bed.Dir, n.Name+".yaml")
	if err := os.WriteFile(path, configuration, 0o644); err != nil {
		return fmt.Errorf("configure %s: %w", n.Name, err)
	}
	p, err := n.Start(context.Background(), f.settings.Programs, role, "--config", path)
	if err != nil {
		return fmt.Errorf("start %s on %s: %w", role, n.Name, err)
	}
	f.daemons = append(f.daemons, p)
	return nil
}

// ready returns when every daemon answers, or with the log of one that ended.
func (f *Farm) ready(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	nodes := append(append([]*testbed.Node{}, f.Bed.LBs...), f.Bed.Servers...)
	for i, n := range nodes {
		group.Go(func() error { return answers(ctx, f.control(n), f.daemons[i]) })
	}
	return group.Wait()
}

func answers(ctx context.Context, control string, p *testbed.Process) error {
	for {
		if _, err := api.Ask(ctx, control); err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended: %s", p.Name, p.Log())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w: %s", p.Name, ctx.Err(), p.Log())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Status asks the daemon of a node.
func (f *Farm) Status(ctx context.Context, n *testbed.Node) (api.Status, error) {
	return api.Ask(ctx, f.control(n))
}

// Count adds up one counter over nodes.
func (f *Farm) Count(ctx context.Context, nodes []*testbed.Node, counter string) (uint64, error) {
	var sum uint64
	for _, n := range nodes {
		s, err := f.Status(ctx, n)
		if err != nil {
			return 0, err
		}
		value, ok := s.Counters[counter]
		if !ok {
			return 0, fmt.Errorf("%s has no counter %q", n.Name, counter)
		}
		sum += value
	}
	return sum, nil
}

// Daemon returns the process that runs on a node.
func (f *Farm) Daemon(n *testbed.Node) *testbed.Process {
	for i, m := range append(append([]*testbed.Node{}, f.Bed.LBs...), f.Bed.Servers...) {
		if m == n {
			return f.daemons[i]
		}
	}
	return nil
}

// Stop ends the daemons; the bed stays.
func (f *Farm) Stop() error {
	var group errgroup.Group
	for _, p := range f.daemons {
		group.Go(p.Stop)
	}
	f.daemons = nil
	return group.Wait()
}

// Servers are the bed's HTTP servers, one a server node, on the VIP.
type Servers struct {
	clock *load.Clock
	All   []*load.Server
}

// Serve starts them.
func Serve(bed *testbed.Bed, m load.Machine) (*Servers, error) {
	clock, err := load.NewClock()
	if err != nil {
		return nil, fmt.Errorf("start the virtual cores: %w", err)
	}
	s := &Servers{clock: clock}
	for _, n := range bed.Servers {
		var l net.Listener
		err := n.Do(func() (err error) {
			l, err = load.Listen(netip.AddrPortFrom(bed.VIP, testbed.Port), Backlog)
			return err
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen on %s: %w", n.Name, err), s.Close())
		}
		server := load.NewServer(n.Name, m, clock)
		s.All = append(s.All, server)
		go server.Serve(l) // ends with Close
	}
	return s, nil
}

// Close ends all servers.
func (s *Servers) Close() error {
	var errs []error
	for _, server := range s.All {
		errs = append(errs, server.Close())
	}
	return errors.Join(append(errs, s.clock.Close())...)
}
