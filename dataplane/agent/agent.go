// Package agent is the server's data plane: it loads bpf/agent/agent.bpf.c, attaches it to
// both ways of a link and adopts the flows of an agent that was killed.
package agent

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

	"proffer/dataplane"
	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/plan"
	"proffer/topo"
)

// Agent is the server's data plane (bpf/agent/agent.bpf.c) on one link.
type Agent struct {
	plane.Plane
	objs     objects.AgentObjects
	services []topo.Offering
	numbers  []uint32 // of the services' loads
	egress   *egress
	sockets  link.Link
	reports  *ebpf.Memory
}

const defaultEmbryonic = 16384 // flows in their handshake

// New loads the programs for cfg and fills their maps; Attach attaches them.
func New(cfg *topo.Agent) (*Agent, error) { return NewWith(cfg, nil) }

// NewWith is New for benches and proofs, which change the programs before they are
// loaded.
func NewWith(cfg *topo.Agent, change func(*ebpf.CollectionSpec) error) (_ *Agent, err error) {
	dev, err := net.InterfaceByName(cfg.Interface)
	if err != nil {
		return nil, fmt.Errorf("link %q: %w", cfg.Interface, err)
	}
	spec, err := objects.LoadAgent()
	if err != nil {
		return nil, fmt.Errorf("read the agent programs: %w", err)
	}
	a := &Agent{Plane: plane.Plane{Dev: dev, FlowTable: cfg.Flows}, services: cfg.Services}
	if a.Names, err = plane.CounterNames(spec); err != nil {
		return nil, err
	}
	if err := a.prepare(spec, cfg, change); err != nil {
		return nil, err
	}
	if a.Pins, a.WhyUnpinned, err = plane.Open(cfg.Pin, dev); err != nil {
		return nil, err
	}
	adopted := a.adopt(spec)
	key, err := connKey(spec, adopted)
	if err != nil {
		return nil, err
	}
	if err := a.load(spec, adopted); err != nil {
		return nil, plane.LoadError("agent", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	a.Counts, a.HopMap, a.Sweeper = a.objs.Counters, a.objs.NextHops, a.objs.SweepConns
	if a.Lost, err = ringbuf.NewReader(a.objs.Unresolved); err != nil {
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

// Objects are the programs and maps in the kernel, for benches and proofs.
func (a *Agent) Objects() *objects.AgentObjects { return &a.objs }

// prepare sets the programs' constants, and the size of their maps.
func (a *Agent) prepare(spec *ebpf.CollectionSpec, cfg *topo.Agent, change func(*ebpf.CollectionSpec) error) error {
	if err := plane.Constants(spec, &cfg.Node, a.Dev); err != nil {
		return err
	}
	cookie, err := netnsCookie()
	if err != nil {
		return err
	}
	if err := spec.Variables["netns_cookie"].Set(cookie); err != nil {
		return fmt.Errorf("set the network namespace's cookie: %w", err)
	}
	a.Lines = connLines(cfg.Flows.Entries, cmp.Or(cfg.Flows.Embryonic, defaultEmbryonic))
	spec.Maps[objects.AgentMapConns].MaxEntries = a.Lines
	if err := spec.Variables["conn_lines"].Set(a.Lines); err != nil {
		return fmt.Errorf("set the size of the table of flows: %w", err)
	}
	if change != nil {
		return change(spec)
	}
	return nil
}

// load loads the programs into the kernel. The programs that count sockets run at every
// state change of every socket of the host, so they are loaded only if a service needs
// them.
func (a *Agent) load(spec *ebpf.CollectionSpec, adopted map[string]*ebpf.Map) error {
	options := &ebpf.CollectionOptions{MapReplacements: adopted}
	if a.countsSockets() {
		return spec.LoadAndAssign(&a.objs, options)
	}
	var some struct {
		AgentIn    *ebpf.Program `ebpf:"agent_in"`
		AgentOut   *ebpf.Program `ebpf:"agent_out"`
		SweepConns *ebpf.Program `ebpf:"sweep_conns"`
		objects.AgentMaps
	}
	if err := spec.LoadAndAssign(&some, options); err != nil {
		return err
	}
	a.objs.AgentIn, a.objs.AgentOut, a.objs.SweepConns = some.AgentIn, some.AgentOut, some.SweepConns
	a.objs.AgentMaps = some.AgentMaps
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

// fill plans and writes the services; an earlier agent's figures of their load stay.
func (a *Agent) fill() error {
	have, err := a.offered()
	if err != nil {
		return err
	}
	steps := plan.Offers(have, a.services)
	for i := range a.services {
		a.numbers = append(a.numbers, uint32(steps[i].Count))
	}
	for i, step := range steps {
		if err := a.execute(i, step); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	return nil
}

// execute executes step i; the first steps are those of the agent's services.
func (a *Agent) execute(i int, step plan.Step) error {
	switch step.Verb {
	case plan.RemoveOffering:
		return a.objs.Offerings.Delete(objects.ServiceKey(step.VIP))
	case plan.UnmarkVIP:
		return a.objs.Offerings.Delete(vipKey(step.VIP))
	}
	s, number := &a.services[i], uint32(step.Count)
	o, err := offeringOf(s, number)
	if err != nil {
		return err
	}
	return errors.Join(
		a.writeLoad(s, number, step.Verb == plan.KeepOffering),
		a.objs.Offerings.Put(objects.ServiceKey(s.VIP), o),
		a.objs.Offerings.Put(vipKey(s.VIP), o))
}

// offeringOf is the service as the programs read it.
func offeringOf(s *topo.Offering, number uint32) (objects.AgentOffering, error) {
	o := objects.AgentOffering{
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

// vipKey is the key of a service's address alone: fragments have no port.
func vipKey(v topo.VIP) objects.LBServiceKey {
	key := objects.ServiceKey(v)
	key.PortBe, key.Protocol = 0, 0
	return key
}

// SetKeys gives the programs the keys that this agent signs with and checks LBs by.
// Without keys the agent accepts and sends signals without a tag.
func (a *Agent) SetKeys(keys []topo.SignalKey) error {
	return plane.WriteKeys(a.objs.Signing, a.objs.FarmKeys, keys, func(k topo.SignalKey) topo.Key { return k.Server })
}

// Attach starts counting sockets, then answering and signalling; from now on
// flows outlive this process.
func (a *Agent) Attach() error {
	if err := a.Pins.Keep(a.lasting()); err != nil {
		return err
	}
	if a.countsSockets() {
		if err := a.attachSockets(); err != nil {
			return err
		}
	}
	// XDP before egress: XDP fails if another agent runs, and our filter would
	// replace the filter of that agent.
	if err := a.AttachXDP(a.objs.AgentIn); err != nil {
		return err
	}
	var err error
	a.egress, err = attachEgress(a.Dev, a.objs.AgentOut)
	return err
}

// attachSockets counts the changes from now on, then the sockets open before; a
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

// Report copies the page of service i to the programs: the busy count and the time of
// its writing (CLOCK_MONOTONIC; 0: never).
func (a *Agent) Report(i int, busy uint32, written time.Duration) error {
	b, err := binary.Append(nil, binary.NativeEndian, objects.AgentReported{WrittenNs: uint64(written), Busy: busy})
	if err == nil {
		_, err = a.reports.WriteAt(b, int64(a.numbers[i])*int64(len(b)))
	}
	if err != nil {
		return fmt.Errorf("report load of service %d: %w", i, err)
	}
	return nil
}

// Load reads the load of service i.
func (a *Agent) Load(i int) (dataplane.Load, error) {
	var l objects.AgentLoad
	if err := a.objs.Loads.Lookup(a.numbers[i], &l); err != nil {
		return dataplane.Load{}, fmt.Errorf("read load of service %d: %w", i, err)
	}
	return dataplane.Load{
		Threshold: l.Threshold,
		Asking:    l.Asking,
		Open:      l.Open,
		Expected:  objects.Expected(&l, uint32(uint64(plane.Monotonic())>>objects.EpochShift)),
	}, nil
}

// Close detaches the programs and frees their maps.
func (a *Agent) Close() error {
	errs := []error{a.Plane.Close()}
	if a.egress != nil {
		errs = append(errs, a.egress.close())
	}
	if a.sockets != nil {
		errs = append(errs, a.sockets.Close())
	}
	return errors.Join(append(errs, a.objs.AgentMaps.Close(), closePrograms(&a.objs.AgentPrograms))...)
}

// closePrograms closes a set of programs that may be incomplete.
func closePrograms(p *objects.AgentPrograms) error {
	var errs []error
	for _, prog := range []*ebpf.Program{p.AgentIn, p.AgentOut, p.SweepConns, p.SocketChanged, p.SocketsOpen} {
		errs = append(errs, prog.Close())
	}
	return errors.Join(errs...)
}

// netnsCookie identifies the network namespace of this process; the kernel never uses
// it again.
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

// Verified reports the verifier's work on the agent's programs.
func (a *Agent) Verified() ([]dataplane.Verified, error) {
	return plane.VerifiedOf(map[string]*ebpf.Program{
		objects.AgentProgAgentIn: a.objs.AgentIn, objects.AgentProgAgentOut: a.objs.AgentOut,
	}, objects.AgentProgAgentIn, objects.AgentProgAgentOut)
}
