// Package experiment runs the real daemons on a testbed farm under load and
// reports their results: the papers' experiments, each by its name.
package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/config"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/policy"
	"proffer/table"
	"proffer/topo"
	"proffer/wire"
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

var candidateDigest = policy.NewDigestKey(candidateKey)

// signalKey is the key of every testbed farm's signals, as an LB has it.
var signalKey = topo.SignalKey{
	ID:     1,
	Farm:   topo.Key{0x66, 0x61, 0x72, 0x6d},
	Server: topo.Key{0x6d, 0x61, 0x73, 0x74, 0x65, 0x72},
}

// Settings say how a farm's service is dispatched and accepted.
type Settings struct {
	Policy   topo.Policy
	Choices  int // of hunt; 0 means 2
	Workers  int
	Cores    int
	Weights  []int // of the servers; nil: all have 1
	Measure  topo.Measure
	Page     func(server string) string // load: page only: the path of each server's page
	OnFull   topo.OnFull
	Programs string // path of the proffer binary
	Lasting  bool   // a daemon that ends leaves its programs and flows to the next
	NoAgents bool   // the servers' kernels take the packets, by End.DT6

	// LB and Agent change the usual configuration, before each start.
	LB    func(*topo.LB)
	Agent func(*testbed.Node, *topo.Agent)
}

// Farm is a testbed with the daemons running on it.
type Farm struct {
	Bed      *testbed.Bed
	Service  topo.Service
	settings Settings
	daemons  map[*testbed.Node]*testbed.Process
	table    *table.Table // of Service, once asked for
}

// Start runs the LBs and an agent a server on bed, and returns when all answer.
func Start(ctx context.Context, bed *testbed.Bed, s Settings) (*Farm, error) {
	f := &Farm{Bed: bed, Service: service(bed, s), settings: s, daemons: map[*testbed.Node]*testbed.Process{}}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	nodes, err := f.daemonNodes()
	if err == nil {
		err = f.start(nodes...)
	}
	if err == nil {
		err = f.ready(ctx, nodes...)
	}
	if err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

// daemonNodes are the nodes that have daemons; the kernels of the others are set up.
func (f *Farm) daemonNodes() ([]*testbed.Node, error) {
	if !f.settings.NoAgents {
		return slices.Concat(f.Bed.LBs, f.Bed.Servers), nil
	}
	for _, n := range f.Bed.Servers {
		if err := f.Bed.Agentless(n, testbed.DT6); err != nil {
			return nil, err
		}
	}
	return f.Bed.LBs, nil
}

// service describes the bed's service as the LBs will see it.
func service(bed *testbed.Bed, s Settings) topo.Service {
	svc := topo.Service{
		Name:     "web",
		VIP:      topo.VIP{Addr: bed.VIP, Port: testbed.Port},
		Dispatch: s.Policy.Dispatch,
		Buckets:  table.DefaultBuckets,
	}
	if s.Policy.Dispatch.Offers() {
		svc.Choices = max(s.Choices, 2)
	}
	for i, n := range bed.Servers {
		svc.Servers = append(svc.Servers, topo.Server{Name: n.Name, Locator: n.Locator, Weight: s.weight(i), Delivery: s.delivery()})
	}
	return svc
}

// weight is that of server i.
func (s Settings) weight(i int) int {
	if s.Weights == nil {
		return 1
	}
	return s.Weights[i]
}

func (s Settings) delivery() topo.Delivery {
	if s.NoAgents {
		return topo.ByDT6
	}
	return topo.ByAgent
}

// start runs the daemons of nodes, with fresh configurations.
func (f *Farm) start(nodes ...*testbed.Node) error {
	for _, n := range nodes {
		role, err := f.configure(n)
		if err != nil {
			return err
		}
		args := []string{role, "--config", f.path(n, "yaml")}
		if !f.settings.Lasting {
			args = append(args, "--detach")
		}
		p, err := n.Start(context.Background(), f.settings.Programs, args...)
		if err != nil {
			return fmt.Errorf("start %s on %s: %w", role, n.Name, err)
		}
		f.daemons[n] = p
	}
	return nil
}

// configure writes the files of a node's daemon.
func (f *Farm) configure(n *testbed.Node) (role string, err error) {
	if slices.Contains(f.Bed.LBs, n) {
		lb := f.lb(n)
		return "lb", f.write(n, config.MarshalLB(lb), config.MarshalLBKeys(lb.Keys))
	}
	agent := f.agent(n)
	return "agent", f.write(n, config.MarshalAgent(agent), config.MarshalAgentKeys(agent.Keys, agent.Locator))
}

func (f *Farm) write(n *testbed.Node, configuration, keys []byte) error {
	err := errors.Join(
		os.WriteFile(f.path(n, "yaml"), configuration, 0o644),
		os.WriteFile(f.path(n, "keys"), keys, 0o600))
	if err != nil {
		return fmt.Errorf("configure %s: %w", n.Name, err)
	}
	return nil
}

func (f *Farm) path(n *testbed.Node, suffix string) string {
	return filepath.Join(f.Bed.Dir, n.Name+"."+suffix)
}

func (f *Farm) lb(n *testbed.Node) *topo.LB {
	lb := &topo.LB{
		Node:         f.node(n),
		State:        f.path(n, "pools"),
		CandidateKey: candidateKey,
		Flows:        topo.FlowTable{Entries: 65536, Idle: 5 * time.Minute, Linger: 10 * time.Second},
		Services:     []topo.Service{f.Service},
	}
	lb.Keys = []topo.SignalKey{signalKey}
	if f.settings.LB != nil {
		f.settings.LB(lb)
	}
	return lb
}

func (f *Farm) agent(n *testbed.Node) *topo.Agent {
	agent := &topo.Agent{
		Node:     f.node(n),
		Flows:    topo.FlowTable{Entries: 8192, Embryonic: 8192, Idle: 5 * time.Minute, Linger: 10 * time.Second},
		Services: []topo.Offering{f.offering(n)},
	}
	own := signalKey
	own.Server = wire.ServerKey(signalKey.Server, n.Locator)
	agent.Keys = []topo.SignalKey{own}
	if f.settings.Agent != nil {
		f.settings.Agent(n, agent)
	}
	return agent
}

func (f *Farm) node(n *testbed.Node) topo.Node {
	return topo.Node{
		Name: n.Name, Locator: n.Locator, Interface: "eth0", Control: f.control(n),
		Pin: n.Pin(), Domain: []netip.Prefix{testbed.SIDBlock()}, KeyFile: f.path(n, "keys"),
	}
}

func (f *Farm) control(n *testbed.Node) string { return f.path(n, "sock") }

// wire is that of the service as the LBs' configuration has it.
func (f *Farm) wire() topo.Wire {
	for _, n := range f.Bed.LBs {
		return f.lb(n).Services[0].Wire
	}
	return f.Service.Wire
}

func (f *Farm) offering(n *testbed.Node) topo.Offering {
	s := f.settings
	o := topo.Offering{
		Name:       f.Service.Name,
		VIP:        f.Service.VIP,
		Wire:       f.wire(),
		Acceptance: s.Policy.Acceptance,
		Threshold:  s.Policy.Threshold,
		Workers:    s.Workers,
		Cores:      s.Cores,
		Measure:    s.Measure,
		OnFull:     s.OnFull,
	}
	if f.Service.Dispatch.Row().Polls > 0 && o.Measure == topo.Busy { // which counts nothing there
		o.Measure = topo.Sockets
	}
	if o.Acceptance.Adapts() { // 6LB §VI: window 50, ε = 0.1
		o.Threshold, o.Window, o.Epsilon = 1, 50, 0.1
	}
	if o.Measure.Page() {
		o.Page = s.Page(n.Name)
	}
	return o
}

// ready returns when the nodes' daemons answer, or with the log of one that ended.
func (f *Farm) ready(ctx context.Context, nodes ...*testbed.Node) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		group.Go(func() error { return answers(ctx, f.control(n), f.daemons[n]) })
	}
	return group.Wait()
}

// Launch starts the daemon of a node, after the last daemon has ended, and returns when
// it answers.
func (f *Farm) Launch(ctx context.Context, n *testbed.Node) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := f.start(n); err != nil {
		return err
	}
	return f.ready(ctx, n)
}

// Reload configures a node's daemon again and returns when it has applied that.
func (f *Farm) Reload(ctx context.Context, n *testbed.Node) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	before, err := f.Status(ctx, n)
	if err != nil {
		return err
	}
	if _, err := f.configure(n); err != nil {
		return err
	}
	if err := f.daemons[n].Signal(unix.SIGHUP); err != nil {
		return fmt.Errorf("reload %s: %w", n.Name, err)
	}
	for {
		s, err := f.Status(ctx, n)
		switch {
		case err != nil:
			return err
		case s.Refused > before.Refused:
			return fmt.Errorf("%s refused its configuration: %s", n.Name, f.daemons[n].Log())
		case s.Reloads > before.Reloads:
			return nil
		}
		time.Sleep(time.Millisecond)
	}
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
func (f *Farm) Daemon(n *testbed.Node) *testbed.Process { return f.daemons[n] }

// Stop ends the daemons; the bed stays.
func (f *Farm) Stop() error {
	var group errgroup.Group
	for _, p := range f.daemons {
		group.Go(p.Stop)
	}
	clear(f.daemons)
	return group.Wait()
}

// Candidates lists the servers that a client's flow is offered to, in order, as
// places in f.Service.Servers.
func (f *Farm) Candidates(flow policy.Flow) ([]uint16, error) {
	if f.table == nil {
		var err error
		if f.table, err = table.Of(&f.Service, f.Service.Servers); err != nil {
			return nil, err
		}
	}
	return f.table.Lookup(candidateDigest.Digest(flow)), nil
}

// Servers are the bed's HTTP servers, one a server node, on the VIP.
type Servers struct {
	clock *traffic.Clock
	All   []*traffic.Server
}

// Serve starts them: each with a machine of its own, or all with the one that is given.
func Serve(bed *testbed.Bed, machines ...traffic.Machine) (*Servers, error) {
	return serveWeb(bed.Servers, netip.AddrPortFrom(bed.VIP, testbed.Port), machines...)
}

func serveWeb(nodes []*testbed.Node, at netip.AddrPort, machines ...traffic.Machine) (*Servers, error) {
	clock, err := traffic.NewClock()
	if err != nil {
		return nil, fmt.Errorf("start the virtual cores: %w", err)
	}
	s := &Servers{clock: clock}
	for i, n := range nodes {
		l, err := listenAt(n, at, Backlog)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		server := traffic.NewServer(n.Name, machines[i%len(machines)], clock)
		s.All = append(s.All, server)
		go server.Serve(l) // ends with Close
	}
	return s, nil
}

// books are the requests that each server served, by its name.
func (s *Servers) books() map[string][]string {
	books := map[string][]string{}
	for i, server := range s.All {
		books[fmt.Sprintf("s%d", i+1)] = server.Served()
	}
	return books
}

// busy are the requests that each server has in hand.
func (s *Servers) busy() []float64 {
	busy := make([]float64, len(s.All))
	for i, server := range s.All {
		busy[i] = float64(server.Busy())
	}
	return busy
}

// Close ends all servers.
func (s *Servers) Close() error {
	var errs []error
	for _, server := range s.All {
		errs = append(errs, server.Close())
	}
	return errors.Join(append(errs, s.clock.Close())...)
}
