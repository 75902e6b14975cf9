// Package lb is the load balancer's data plane: it loads bpf/lb/lb.bpf.c, attaches it to a
// link and applies configurations while packets flow.
package lb

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"proffer/dataplane"
	"proffer/dataplane/internal/hook"
	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/plan"
	"proffer/topo"
)

// LB is the load balancer's data plane (bpf/lb/lb.bpf.c) on a link.
type LB struct {
	plane.Plane
	mu       sync.Mutex // Apply and SetNextHops both write servers
	objs     objects.LBObjects
	node     topo.Node
	numbers  *numbers
	servers  []topo.Server
	written  map[uint32]objects.LBServer // by number
	tunnels  map[uint32]objects.LBTunnel
	signers  map[objects.LBSigner]objects.LBKey
	signing  []topo.SignalKey // that this LB signs with, the first
	services map[topo.VIP]placed
	records  *records
	lists    *lists
	slots    *slots
	tallies  *tallies
	health   *health
	state    *plan.State // that the maps hold
	retired  []placed    // that no record names any more
	attached bool
	speaks   [2][16]byte // addresses that errors are sent from

	sweeping   sync.Mutex     // the table of before
	before     *plane.Earlier // flows of an earlier daemon, in a table of another size or layout; or nil
	keptBefore atomic.Uint64
	waits      string // why the table has another size than the configuration's; empty: it has that
}

// New loads the program for cfg and fills its maps; Attach attaches it.
func New(cfg *topo.LB) (*LB, error) { return NewWith(cfg, nil) }

// NewWith is New for benches and proofs, which change the programs before they are
// loaded.
func NewWith(cfg *topo.LB, change func(*ebpf.CollectionSpec) error) (*LB, error) {
	return NewOf(cfg, dataplane.Shipped(objects.LoadLB, change))
}

// NewOf is New with programs of the caller's.
func NewOf(cfg *topo.LB, programs dataplane.Programs) (_ *LB, err error) {
	dev, err := net.InterfaceByName(cfg.Interface)
	if err != nil {
		return nil, fmt.Errorf("link %q: %w", cfg.Interface, err)
	}
	spec, err := programs.Read()
	if err != nil {
		return nil, fmt.Errorf("read the lb programs: %w", err)
	}
	l := &LB{
		Plane:    plane.Plane{FlowTable: cfg.Flows},
		node:     cfg.Node,
		written:  map[uint32]objects.LBServer{},
		tunnels:  map[uint32]objects.LBTunnel{},
		signers:  map[objects.LBSigner]objects.LBKey{},
		services: map[topo.VIP]placed{},
	}
	l.Dev.Store(dev)
	if l.Names, err = plane.CounterNames(spec); err != nil {
		return nil, err
	}
	if err := l.prepare(spec, cfg, programs.Change); err != nil {
		return nil, err
	}
	if l.Pins, l.WhyUnpinned, err = plane.Open(cfg.Pin, dev, plane.Layout); err != nil {
		return nil, err
	}
	adopted, err := l.adopt(spec)
	if err != nil {
		return nil, err
	}
	before := l.Pins.Numbers() // this LB's are in a map of its own
	defer before.Close()
	if err := l.sizeBefore(spec); err != nil {
		return nil, err
	}
	if err := l.fits(cfg.Flows.Entries, adopted[objects.LBMapFlows] != nil); err != nil {
		return nil, err
	}
	if err := programs.Load(spec, &l.objs, &ebpf.CollectionOptions{MapReplacements: adopted}); err != nil {
		return nil, plane.LoadError("lb", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if err := l.putBefore(); err != nil {
		return nil, err
	}
	l.Counts, l.HopMap, l.Sweeper, l.Self = l.objs.Counters, l.objs.NextHops, l.objs.SweepFlows, l.objs.Self
	l.SuspectMap, l.DefaultHops = l.objs.Suspects, l.objs.DefaultHops
	if l.Served, err = plane.NewServed(l.objs.Served, l.objs.Strangers, false, l.Dev.Load()); err != nil {
		return nil, err
	}
	if l.Lost, err = ringbuf.NewReader(l.objs.Unresolved); err != nil {
		return nil, fmt.Errorf("read unresolved next hops: %w", err)
	}
	if l.numbers, err = takeNumbers(before, l.objs.ServerByLocator, newSenders(l.objs.Senders)); err != nil {
		return nil, err
	}
	l.lists = newLists(l.objs.AllowedClients)
	if l.slots, err = newSlots(l.objs.Tables); err != nil {
		return nil, err
	}
	if l.tallies, err = newTallies(l.objs.Tallies, l.objs.RenewTally); err != nil {
		return nil, err
	}
	if l.health, err = newHealth(l.objs.HealthOfServers, l.objs.Probes); err != nil {
		return nil, err
	}
	if l.records, err = newRecords(l.objs.Services, l.objs.ServiceSlots, l.slots.wait); err != nil {
		return nil, err
	}
	l.state = l.adopted()
	return l, l.Configure(cfg)
}

// adopt returns the maps of an earlier daemon that the programs use as they are. Its table of another size or
// layout is that of before.
func (l *LB) adopt(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	flows, before, err := l.Pins.AdoptFlows(spec)
	if err != nil {
		return nil, err
	}
	adopted := map[string]*ebpf.Map{}
	if flows != nil || before != nil { // else its counts are of no flows
		adopted = l.Pins.Adopt(spec, objects.LBMapTallies, objects.LBMapClients)
	}
	if l.before = before; flows != nil {
		adopted[objects.LBMapFlows] = flows
		err = l.keepSize(spec, flows.MaxEntries())
	}
	return adopted, err
}

// Objects are the programs and maps in the kernel, for benches and proofs.
func (l *LB) Objects() *objects.LBObjects { return &l.objs }

// prepare sets the programs' constants, and the size of their maps.
func (l *LB) prepare(spec *ebpf.CollectionSpec, cfg *topo.LB, change func(*ebpf.CollectionSpec) error) error {
	if err := l.Constants(spec, &cfg.Node); err != nil {
		return err
	}
	if err := l.sizeFlows(spec, cfg); err != nil {
		return err
	}
	if err := spec.Variables["link_number"].Set(uint32(l.Dev.Load().Index)); err != nil {
		return fmt.Errorf("set the number of the link: %w", err)
	}
	if change != nil {
		return change(spec)
	}
	return nil
}

// Attach puts the program on the link; from now on flows outlive this process.
func (l *LB) Attach() error {
	maps := map[string]*ebpf.Map{
		objects.LBMapFlows: l.objs.Flows, objects.LBMapServerByLocator: l.objs.ServerByLocator,
		objects.LBMapPrograms: l.objs.Programs, objects.LBMapTallies: l.objs.Tallies, objects.LBMapClients: l.objs.Clients,
	}
	if l.before != nil {
		maps[l.before.Pin()] = l.before.Map
	}
	err := l.Plane.Attach(l.objs.Lb, maps, l.attachLong)
	l.attached = err == nil
	return err
}

// attachLong attaches the program for packets that XDP leaves to the stack as too long.
func (l *LB) attachLong() (err error) {
	l.TC, err = hook.AttachTC(hook.Place{
		Dev: l.Dev.Load(), Pin: l.Pins.Place(hook.IngressPin), Mark: l.Pins.Place(hook.QdiscMark), In: true,
	}, l.objs.LbLong)
	return err
}

// Close frees the memory of this process; a pinned program goes on.
func (l *LB) Close() error {
	errs := []error{l.Plane.Close(), l.slots.close(), l.records.close(), l.tallies.close(), l.health.close(), l.objs.Close()}
	if l.before != nil {
		errs = append(errs, l.before.Map.Close())
	}
	for _, p := range l.services {
		errs = append(errs, p.table.Close())
	}
	for _, p := range l.retired {
		errs = append(errs, p.table.Close())
	}
	return errors.Join(errs...)
}

// Verified reports the verifier's work on the LB's programs.
func (l *LB) Verified() ([]dataplane.Verified, error) {
	return plane.VerifiedOf(map[string]*ebpf.Program{
		objects.LBProgLb: l.objs.Lb, objects.LBProgLbSignal: l.objs.LbSignal, objects.LBProgLbKept: l.objs.LbKept, objects.LBProgLbReturned: l.objs.LbReturned,
		objects.LBProgLbOdd: l.objs.LbOdd, objects.LBProgLbBefore: l.objs.LbBefore, objects.LBProgLbList: l.objs.LbList, objects.LBProgLbAgentless: l.objs.LbAgentless, objects.LBProgLbLong: l.objs.LbLong,
		objects.LBProgLbBehind: l.objs.LbBehind,
	}, objects.LBProgLb, objects.LBProgLbSignal, objects.LBProgLbReturned, objects.LBProgLbKept, objects.LBProgLbOdd, objects.LBProgLbList, objects.LBProgLbAgentless, objects.LBProgLbLong, objects.LBProgLbBehind, objects.LBProgLbBefore)
}
