package farmrun

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"proffer/config"
	"proffer/lab/testbed"
	"proffer/policy"
	"proffer/table"
	"proffer/topo"
	"proffer/wire"
)

// CandidateKey is the key of every testbed farm: fixed, so that a seed gives
// the same lists every time.
var CandidateKey = topo.Key{0x50, 0x72, 0x6f, 0x66, 0x66, 0x65, 0x72, 0x20, 0x74, 0x65, 0x73, 0x74, 0x62, 0x65, 0x64, 0x2e}

var candidateDigest = policy.NewDigestKey(CandidateKey)

// SignalKey is the key of every testbed farm's signals, as an LB has it.
var SignalKey = topo.SignalKey{
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
		os.WriteFile(f.path(n, "yaml"), configuration, 0o600),
		os.WriteFile(f.path(n, "keys"), keys, 0o600))
	if err != nil {
		return fmt.Errorf("configure %s: %w", n.Name, err)
	}
	return nil
}

func (f *Farm) path(n *testbed.Node, suffix string) string {
	return filepath.Join(f.Bed.Dir, n.Name+"."+suffix)
}

// Record is the file of the pools that an LB has served.
func (f *Farm) Record(n *testbed.Node) string { return f.path(n, "pools") }

func (f *Farm) lb(n *testbed.Node) *topo.LB {
	lb := &topo.LB{
		Node:         f.node(n),
		State:        f.Record(n),
		CandidateKey: CandidateKey,
		Flows:        topo.FlowTable{Entries: 65536, Idle: 5 * time.Minute, Linger: 10 * time.Second},
		Services:     []topo.Service{f.Service},
	}
	lb.Keys = []topo.SignalKey{SignalKey}
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
	own := SignalKey
	own.Server = wire.ServerKey(SignalKey.Server, n.Locator)
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
