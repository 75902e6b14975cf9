// Package agent is the server's data plane: it loads bpf/agent/agent.bpf.c, attaches it to
// both ways of a link and adopts the flows of an agent that was killed.
package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/dataplane/internal/hook"
	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/topo"
)

// Agent is the server's data plane (bpf/agent/agent.bpf.c) on a link.
type Agent struct {
	plane.Plane
	objs     objects.AgentObjects
	services []topo.Offering
	numbers  []uint32 // of the services' loads
	silence  silence
	mu       sync.Mutex         // guards services, numbers and work
	before   *ebpf.Map          // services of an earlier agent, until its programs are replaced
	earlier  *plane.ConnsBefore // its flows, until they are restored
	sockets  link.Link
	work     *work  // nil: not counted …
	noWork   string // … for this reason; empty: no service needs it
	reports  *ebpf.Memory
	handed   handed
	offered  offered
	grace    *plane.Grace
	spaces   map[topo.VIP]int32 // numbers of the services' namespaces, as written
	counting uint32             // the number of recounts
	unmoved  uint32             // requests in the other count, of this recount
	seeking  sync.Mutex         // held while the sockets without an entry are sought
	trusted  int                // sweeps of the whole table since they were
}

const defaultEmbryonic = 16384 // flows in their handshake

// New loads the programs for cfg and fills their maps; Attach attaches them.
func New(cfg *topo.Agent) (*Agent, error) { return NewWith(cfg, nil) }

// NewWith is New for benches and proofs, which change the programs before they are
// loaded.
func NewWith(cfg *topo.Agent, change func(*ebpf.CollectionSpec) error) (*Agent, error) {
	return NewOf(cfg, dataplane.Shipped(objects.LoadAgent, change))
}

// NewOf is New with programs of the caller's.
func NewOf(cfg *topo.Agent, programs dataplane.Programs) (_ *Agent, err error) {
	dev, err := net.InterfaceByName(cfg.Interface)
	if err != nil {
		return nil, fmt.Errorf("link %q: %w", cfg.Interface, err)
	}
	spec, err := programs.Read()
	if err != nil {
		return nil, fmt.Errorf("read the agent programs: %w", err)
	}
	a := &Agent{Plane: plane.Plane{FlowTable: cfg.Flows}, services: cfg.Services, spaces: map[topo.VIP]int32{}, handed: handed{}}
	a.Dev.Store(dev)
	if a.Names, err = plane.CounterNames(spec); err != nil {
		return nil, err
	}
	if err := a.prepare(spec, cfg, programs.Change); err != nil {
		return nil, err
	}
	if a.Pins, a.WhyUnpinned, err = plane.Open(cfg.Pin, dev, plane.Layout); err != nil {
		return nil, err
	}
	adopted := a.adopt(spec)
	known := a.adoptWork()
	if works := known[objects.AgentMapWorks]; works != nil {
		adopted = with(adopted, objects.AgentMapWorks, works)
	}
	key, err := connKey(spec, adopted)
	if err != nil {
		return nil, err
	}
	if adopted[objects.AgentMapConns] == nil {
		bytes := uint64(a.Lines) * uint64(spec.Maps[objects.AgentMapConns].ValueSize+spec.Maps[objects.AgentMapConnHints].ValueSize)
		if err := plane.MemoryLeft(os.DirFS("/")).Fits(cfg.Flows.Entries, bytes); err != nil {
			return nil, errors.Join(err, a.Pins.Unlock())
		}
	}
	if err := a.load(spec, adopted, programs); err != nil {
		return nil, plane.LoadError("agent", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	a.Counts, a.HopMap, a.Sweeper, a.Self = a.objs.Counters, a.objs.NextHops, a.objs.SweepConns, a.objs.Self
	a.SuspectMap, a.DefaultHops = a.objs.Suspects, a.objs.DefaultHops
	if a.Served, err = plane.NewServed(a.objs.Served, a.objs.Strangers, true, a.Dev.Load()); err != nil {
		return nil, err
	}
	if a.grace, err = plane.NewGrace(); err != nil {
		return nil, err
	}
	if a.Lost, err = ringbuf.NewReader(a.objs.Unresolved); err != nil {
		return nil, fmt.Errorf("read unresolved next hops: %w", err)
	}
	if a.reports, err = a.objs.Reports.Memory(); err != nil {
		return nil, fmt.Errorf("map the load reports: %w", err)
	}
	if a.offered, err = newOffered(a.objs.Offered, a.objs.OfferedBits); err != nil {
		return nil, err
	}
	a.beginWork(a.services, known)
	if err := errors.Join(a.setNamespace(), a.objs.ConnKey.Put(uint32(0), key), a.fill(), a.setClock()); err != nil {
		return nil, err
	}
	return a, a.SetKeys(cfg.Keys)
}

// Objects are the programs and maps in the kernel, for benches and proofs.
func (a *Agent) Objects() *objects.AgentObjects { return &a.objs }

// prepare sets the programs' constants, and the size of their maps.
func (a *Agent) prepare(spec *ebpf.CollectionSpec, cfg *topo.Agent, change func(*ebpf.CollectionSpec) error) error {
	if err := a.Constants(spec, &cfg.Node); err != nil {
		return err
	}
	a.Lines = connLines(cfg.Flows.Entries, cmp.Or(cfg.Flows.Embryonic, defaultEmbryonic))
	for _, name := range []string{objects.AgentMapConns, objects.AgentMapConnHints} {
		spec.Maps[name].MaxEntries = a.Lines
	}
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
func (a *Agent) load(spec *ebpf.CollectionSpec, adopted map[string]*ebpf.Map, programs dataplane.Programs) error {
	options := &ebpf.CollectionOptions{MapReplacements: adopted}
	if countsSockets(a.services) {
		return programs.Load(spec, &a.objs, options)
	}
	var some struct {
		AgentIn      *ebpf.Program `ebpf:"agent_in"`
		AgentReturn  *ebpf.Program `ebpf:"agent_return"`
		AgentOut     *ebpf.Program `ebpf:"agent_out"`
		SweepConns   *ebpf.Program `ebpf:"sweep_conns"`
		EndRecount   *ebpf.Program `ebpf:"end_recount"`
		SetThreshold *ebpf.Program `ebpf:"set_threshold"`
		AdoptConns   *ebpf.Program `ebpf:"adopt_conns"`
		RestoreConns *ebpf.Program `ebpf:"restore_conns"`
		objects.AgentMaps
		objects.AgentVariables
	}
	if err := programs.Load(spec, &some, options); err != nil {
		return err
	}
	a.objs.AgentPrograms = objects.AgentPrograms{
		AgentIn: some.AgentIn, AgentReturn: some.AgentReturn, AgentOut: some.AgentOut,
		SweepConns: some.SweepConns, EndRecount: some.EndRecount, SetThreshold: some.SetThreshold, AdoptConns: some.AdoptConns, RestoreConns: some.RestoreConns,
	}
	a.objs.AgentMaps, a.objs.AgentVariables = some.AgentMaps, some.AgentVariables
	return nil
}

// SetKeys gives the programs the keys that this agent signs with and checks LBs by.
// Without keys the agent accepts and sends signals without a tag.
func (a *Agent) SetKeys(keys []topo.SignalKey) error {
	return plane.WriteKeys(a.objs.Signing, a.objs.FarmKeys, keys, func(k topo.SignalKey) topo.Key { return k.Server })
}

// Attach starts answering, signalling and counting sockets; from now on flows outlive this
// process.
func (a *Agent) Attach() error {
	if err := a.beginRestore(); err != nil {
		return err
	}
	if err := a.Plane.Attach(a.objs.AgentIn, a.lasting(), a.attachRest); err != nil {
		return err
	}
	if err := errors.Join(a.endRestore(), a.settle()); err != nil {
		return err
	}
	_, err := a.Recount()
	return errors.Join(err, a.Complete(), a.recountWork())
}

// attachRest attaches the programs that need no XDP. It comes after XDP, which fails if another
// agent runs. Until the rest is there, an earlier agent's sockets are counted by its programs.
func (a *Agent) attachRest() (err error) {
	if countsSockets(a.services) {
		if err := a.attachSockets(); err != nil {
			return err
		}
	}
	if a.TC, err = hook.AttachTC(a.wayOut(), a.objs.AgentOut); err != nil {
		return err
	}
	return errors.Join(a.pinSockets(), a.work.pin(&a.Pins))
}

// wayOut is the place of the program on the way out.
func (a *Agent) wayOut() hook.Place {
	return hook.Place{Dev: a.Dev.Load(), Pin: a.Pins.Place(hook.EgressPin), Mark: a.Pins.Place(hook.QdiscMark)}
}

// pinSockets puts the counting of sockets into the place of an earlier agent's, which ends.
func (a *Agent) pinSockets() error {
	pin := a.Pins.Place(hook.SocketsPin)
	if err := os.Remove(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("end the counting of sockets: %w", err)
	}
	if a.sockets == nil || pin == "" {
		return nil
	}
	return a.sockets.Pin(pin)
}

// attachSockets counts the changes from now on, then the sockets open before.
func (a *Agent) attachSockets() (err error) {
	a.sockets, err = link.AttachTracing(link.TracingOptions{Program: a.objs.SocketChanged})
	if err != nil {
		return fmt.Errorf("watch socket states: %w", err)
	}
	return a.countOpen()
}

// countOpen counts each open socket in the load of its service now. A socket is marked with the
// count that has it, so it is counted once.
func (a *Agent) countOpen() error {
	if err := visitSockets(a.objs.SocketsOpen); err != nil {
		return fmt.Errorf("count open sockets: %w", err)
	}
	return nil
}

// Load reads the load of service i.
func (a *Agent) Load(i int) (_ dataplane.Load, err error) {
	var l objects.AgentLoad
	a.mu.Lock()
	defer a.mu.Unlock()
	if i >= len(a.numbers) {
		return dataplane.Load{}, fmt.Errorf("read load of service %d: there are %d now", i, len(a.numbers))
	}
	number := a.numbers[i]
	if err := a.objs.Loads.Lookup(number, &l); err != nil {
		return dataplane.Load{}, fmt.Errorf("read load of service %d: %w", i, err)
	}
	var open [2]uint32
	for parity := range uint32(2) {
		if err := a.objs.OpenSockets.Lookup(2*number+parity, &open[parity]); err != nil {
			return dataplane.Load{}, fmt.Errorf("read open sockets of service %d: %w", i, err)
		}
	}
	now := plane.Monotonic()
	var w *dataplane.Work
	if a.measureOf(&a.services[i]).Work() {
		w = a.work.read(number, now)
	}
	load := dataplane.Load{
		Measure:   a.measureOf(&a.services[i]),
		Instead:   a.whyInstead(&a.services[i]),
		Work:      w,
		NoRecount: a.work.whyNoRecount(&a.services[i]),
		Threshold: l.Threshold,
		Asking:    objects.Asking(&l),
		Answered:  l.Answered,
		Open:      open[0] + open[1],
		Expected:  objects.Expected(&l, uint32(uint64(now)>>objects.EpochShift)),
	}
	load.Busy, load.Known, err = a.busy(&load, &a.services[i], number, now)
	return load, err
}

// busy is the number of the measure in use, as offers meet it; false: it is not known.
func (a *Agent) busy(l *dataplane.Load, s *topo.Offering, number uint32, now time.Duration) (uint32, bool, error) {
	switch {
	case l.Measure.Page():
		return a.word(s, number, now)
	case l.Measure.Sockets():
		return l.Open, true, nil
	case l.Work != nil:
		return l.Work.Busy(), true, nil
	default:
		return l.Asking, true, nil
	}
}

// Close frees the memory of this process; pinned programs go on.
func (a *Agent) Close() error {
	errs := []error{a.Plane.Close()}
	if a.sockets != nil {
		errs = append(errs, a.sockets.Close())
	}
	return errors.Join(append(errs, a.work.close(), a.offered.close(), a.handed.keep(nil), a.grace.Close(), a.earlier.Close(), a.objs.AgentMaps.Close(), closePrograms(&a.objs.AgentPrograms))...)
}

// closePrograms closes a set of programs that may be incomplete.
func closePrograms(p *objects.AgentPrograms) error {
	var errs []error
	for _, prog := range []*ebpf.Program{p.AgentIn, p.AgentReturn, p.AgentOut, p.SweepConns, p.EndRecount, p.SetThreshold, p.AdoptConns, p.RestoreConns, p.SocketChanged, p.SocketsOpen} {
		errs = append(errs, prog.Close())
	}
	return errors.Join(errs...)
}

// setNamespace tells the programs that count sockets whose sockets.
func (a *Agent) setNamespace() error {
	cookie, err := netnsCookie()
	if err != nil {
		return err
	}
	if err := a.objs.NetnsCookie.Set(cookie); err != nil {
		return fmt.Errorf("set the network namespace's cookie: %w", err)
	}
	return nil
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
		objects.AgentProgAgentIn: a.objs.AgentIn, objects.AgentProgAgentReturn: a.objs.AgentReturn,
		objects.AgentProgAgentOut: a.objs.AgentOut,
	}, objects.AgentProgAgentIn, objects.AgentProgAgentReturn, objects.AgentProgAgentOut)
}
