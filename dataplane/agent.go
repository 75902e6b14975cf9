package dataplane

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"proffer/topo"
)

// Agent is the server's data plane (bpf/agent/agent.bpf.c) on one link.
type Agent struct {
	plane
	objs     agentObjects
	services []topo.Offering
	numbers  []uint32 // of the services' loads
	egress   *egress
	sockets  link.Link
	reports  *ebpf.Memory
}

const defaultEmbryonic = 16384 // flows whose handshake is not over

// Load is what a service is doing, as its agent sees it.
type Load struct {
	Threshold uint32 // c of static and dynamic acceptance
	Asking    uint32 // connections with a request in progress
	Expected  uint32 // accepted in the last second and not arrived, uncapped
	Open      uint32 // established sockets; counted for the signal `sockets` only
}

// NewAgent loads the programs for cfg and fills their maps; Attach makes them work.
func NewAgent(cfg *topo.Agent) (*Agent, error) { return newAgent(cfg, nil) }

// newAgent lets a test change the programs before they are loaded.
func newAgent(cfg *topo.Agent, change func(*ebpf.CollectionSpec) error) (_ *Agent, err error) {
	dev, err := net.InterfaceByName(cfg.Interface)
	if err != nil {
		return nil, fmt.Errorf("link %q: %w", cfg.Interface, err)
	}
	spec, err := loadAgent()
	if err != nil {
		return nil, fmt.Errorf("read the agent programs: %w", err)
	}
	a := &Agent{plane: plane{dev: dev, flows: cfg.Flows}, services: cfg.Services}
	if a.names, err = counterNames(spec); err != nil {
		return nil, err
	}
	if err := a.prepare(spec, cfg, change); err != nil {
		return nil, err
	}
	if a.pins, a.unpinned, err = openPins(cfg.Pin, dev); err != nil {
		return nil, err
	}
	adopted := a.adopt(spec)
	key, err := connKey(spec, adopted)
	if err != nil {
		return nil, err
	}
	if err := a.load(spec, adopted); err != nil {
		return nil, loadError("agent", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	a.counters, a.nextHops, a.sweep = a.objs.Counters, a.objs.NextHops, a.objs.SweepConns
	if a.lost, err = ringbuf.NewReader(a.objs.Unresolved); err != nil {
		return nil, fmt.Errorf("read unresolved next hops: %w", err)
	}
	if a.reports, err = a.objs.Reports.Memory(); err != nil {
		return nil, fmt.Errorf("map the load reports: %w", err)
	}
	if err := errors.Join(a.objs.ConnKey.Put(uint32(0), key), a.fill()); err != nil {
		return nil, err
	}
	return a, a.SetKeys(cfg.Keys)
}

// prepare sets what the programs take as constants, and the size of their maps.
func (a *Agent) prepare(spec *ebpf.CollectionSpec, cfg *topo.Agent, change func(*ebpf.CollectionSpec) error) error {
	if err := constants(spec, &cfg.Node, a.dev); err != nil {
		return err
	}
	cookie, err := netnsCookie()
	if err != nil {
		return err
	}
	if err := spec.Variables["netns_cookie"].Set(cookie); err != nil {
		return fmt.Errorf("set the network namespace's cookie: %w", err)
	}
	a.lines = connLines(cfg.Flows.Entries, cmp.Or(cfg.Flows.Embryonic, defaultEmbryonic))
	spec.Maps[agentMapConns].MaxEntries = a.lines
	if err := spec.Variables["conn_lines"].Set(a.lines); err != nil {
		return fmt.Errorf("set the size of the table of flows: %w", err)
	}
	if change != nil {
		return change(spec)
	}
	return nil
}

// load brings the programs into the kernel; those that count sockets run at
// every state change of every socket of the host, so only if they are wanted.
func (a *Agent) load(spec *ebpf.CollectionSpec, adopted map[string]*ebpf.Map) error {
	options := &ebpf.CollectionOptions{MapReplacements: adopted}
	if a.countsSockets() {
		return spec.LoadAndAssign(&a.objs, options)
	}
	var some struct {
		AgentIn    *ebpf.Program `ebpf:"agent_in"`
		AgentOut   *ebpf.Program `ebpf:"agent_out"`
		SweepConns *ebpf.Program `ebpf:"sweep_conns"`
		agentMaps
	}
	if err := spec.LoadAndAssign(&some, options); err != nil {
		return err
	}
	a.objs.AgentIn, a.objs.AgentOut, a.objs.SweepConns = some.AgentIn, some.AgentOut, some.SweepConns
	a.objs.agentMaps = some.agentMaps
	return nil
}

func (a *Agent) countsSockets() bool {
	for _, s := range a.services {
		if s.Measure.Sockets() {
			return true
		}
	}
	return false
}

// fill writes the services; what an earlier agent knew of their load stays.
func (a *Agent) fill() error {
	have, err := a.numbered()
	if err != nil {
		return err
	}
	a.numbers = number(a.services, have)
	for i, s := range a.services {
		o, err := offeringOf(&s, a.numbers[i])
		if err != nil {
			return fmt.Errorf("service %s: %w", s.Name, err)
		}
		_, known := have[serviceKey(s.VIP)]
		err = errors.Join(
			a.writeLoad(&s, a.numbers[i], known),
			a.objs.Offerings.Put(serviceKey(s.VIP), o),
			a.objs.Offerings.Put(vipKey(s.VIP), o))
		if err != nil {
			return fmt.Errorf("write service %s: %w", s.Name, err)
		}
	}
	return a.forgetOthers(have)
}

// offeringOf is the service as the programs read it.
func offeringOf(s *topo.Offering, number uint32) (agentOffering, error) {
	o := agentOffering{
		Index:      number,
		Cores:      uint32(s.Cores),
		Window:     uint32(s.Window),
		EpsilonPpm: uint32(math.Round(s.Epsilon * 1e6)),
		Workers:    uint32(s.Workers),
		Acceptance: uint8(s.Acceptance),
		Measure:    uint8(s.Measure),
		OnFull:     uint8(s.OnFull),
		Owner:      uint8(s.Owner),
		Netns:      -1,
		Mac:        s.MAC,
	}
	if s.Owner != topo.Netns {
		return o, nil
	}
	id, err := netnsID(s.Netns)
	o.Netns = id
	return o, err
}

// vipKey stands for the address of a service, which fragments are known by.
func vipKey(v topo.VIP) lbServiceKey {
	key := serviceKey(v)
	key.PortBe, key.Protocol = 0, 0
	return key
}

// SetKeys gives the programs what this agent signs with and what it knows LBs by.
// Without keys it takes and sends signals that carry no tag.
func (a *Agent) SetKeys(keys []topo.SignalKey) error {
	return writeKeys(a.objs.Signing, a.objs.FarmKeys, keys, func(k topo.SignalKey) topo.Key { return k.Server })
}

// Attach starts counting sockets, then answering and signalling; from now on
// flows outlive this process.
func (a *Agent) Attach() error {
	if err := a.pins.keep(a.lasting()); err != nil {
		return err
	}
	if a.countsSockets() {
		if err := a.attachSockets(); err != nil {
			return err
		}
	}
	// XDP before egress: it is refused where another agent runs, whose egress
	// filter ours would replace.
	if err := a.attach(a.objs.AgentIn); err != nil {
		return err
	}
	var err error
	a.egress, err = attachEgress(a.dev, a.objs.AgentOut)
	return err
}

// attachSockets counts what changes from now on, then what was open before; a
// socket that is seen twice is marked and counted once.
func (a *Agent) attachSockets() error {
	var err error
	a.sockets, err = link.AttachTracing(link.TracingOptions{Program: a.objs.SocketChanged})
	if err != nil {
		return fmt.Errorf("watch socket states: %w", err)
	}
	iter, err := link.AttachIter(link.IterOptions{Program: a.objs.SocketsOpen})
	if err != nil {
		return fmt.Errorf("count open sockets: %w", err)
	}
	defer iter.Close()
	r, err := iter.Open()
	if err != nil {
		return fmt.Errorf("count open sockets: %w", err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("count open sockets: %w", err)
	}
	return nil
}

// Report hands on what the page of service i says: the busy count and when its
// writer wrote it (CLOCK_MONOTONIC; 0: never).
func (a *Agent) Report(i int, busy uint32, written time.Duration) error {
	var b [16]byte
	binary.NativeEndian.PutUint64(b[:], uint64(written))
	binary.NativeEndian.PutUint32(b[8:], busy)
	if _, err := a.reports.WriteAt(b[:], int64(a.numbers[i])*int64(len(b))); err != nil {
		return fmt.Errorf("report load of service %d: %w", i, err)
	}
	return nil
}

// Load reads what service i is doing.
func (a *Agent) Load(i int) (Load, error) {
	var l agentLoad
	if err := a.objs.Loads.Lookup(a.numbers[i], &l); err != nil {
		return Load{}, fmt.Errorf("read load of service %d: %w", i, err)
	}
	return Load{
		Threshold: l.Threshold,
		Asking:    l.Asking,
		Open:      l.Open,
		Expected:  expected(&l, uint32(uint64(monotonic())>>epochShift)),
	}, nil
}

const epochShift = 27 // EPOCH_SHIFT of types.h, held equal by a test

func expected(l *agentLoad, epoch uint32) (n uint32) {
	for _, p := range l.Pending {
		if epoch-p.Epoch < uint32(len(l.Pending)) {
			n += p.Count
		}
	}
	return n
}

// Close detaches the programs and frees their maps.
func (a *Agent) Close() error {
	errs := []error{a.plane.close()}
	if a.egress != nil {
		errs = append(errs, a.egress.close())
	}
	if a.sockets != nil {
		errs = append(errs, a.sockets.Close())
	}
	return errors.Join(append(errs, a.objs.agentMaps.Close(), closePrograms(&a.objs.agentPrograms))...)
}

// closePrograms is agentPrograms.Close for a set that may be incomplete.
func closePrograms(p *agentPrograms) error {
	var errs []error
	for _, prog := range []*ebpf.Program{p.AgentIn, p.AgentOut, p.SweepConns, p.SocketChanged, p.SocketsOpen} {
		errs = append(errs, prog.Close())
	}
	return errors.Join(errs...)
}

// netnsCookie names the network namespace of this process for ever.
func netnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("ask for the network namespace's cookie: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("ask for the network namespace's cookie: %w", err)
	}
	return cookie, nil
}
