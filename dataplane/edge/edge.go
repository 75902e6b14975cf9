// Package edge is the data plane of EdgeBalance's load balancer: it loads
// bpf/edge/edge.bpf.c, attaches it to its links, and gives it nodes, services and
// weights (EdgeBalance §3).
package edge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"proffer/dataplane"
	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/topo"
	"proffer/weights"
)

// LB is the load balancer's data plane.
type LB struct {
	idle     time.Duration // after which a flow is removed
	counters plane.Plane
	objs     objects.EdgeObjects
	cfg      *topo.EdgeLB
	numbers  map[uint32]uint32 // of all instances since the start, by their VNI
	banks    map[int]uint32    // of each service: the alias table in use, 0 or 1
	grace    *plane.Grace
	served   *plane.Served // other link addresses
	speakers [4][16]byte   // addresses that errors are sent from
	prober   *net.UDPConn  // of probes; nil before the first
	waits    int           // for packets on their way, so far
	switched map[int]int   // of each service: the waits before its weights changed last
	began    time.Duration // by the programs' clock
	prefixes int           // their version

	mu       sync.Mutex                  // of the rest, which next hops, probes and a change of the host meet
	links    map[string]*plane.Attached  // by their names in the configuration
	gone     map[string]bool             // links to nodes that were deleted
	attached bool                        // Attach was called
	own      map[netip.Addr]bool         // addresses of this host, as they were written
	ends     map[int]objects.EdgeEdgeEnd // of nodes, as they were written
}

// New loads the programs for cfg and fills their maps; Attach attaches them. No node takes
// flows until SetNextHop.
func New(cfg *topo.EdgeLB) (*LB, error) { return NewWith(cfg, nil) }

// NewWith is New for tests, which change the programs before they are loaded.
func NewWith(cfg *topo.EdgeLB, change func(*ebpf.CollectionSpec) error) (_ *LB, err error) {
	l := &LB{
		cfg:  &topo.EdgeLB{Clients: cfg.Clients, World: cfg.World, Key: cfg.Key, Flows: cfg.Flows, RecoverAll: cfg.RecoverAll},
		idle: cfg.Flows.Idle, numbers: map[uint32]uint32{}, banks: map[int]uint32{}, switched: map[int]int{},
		links: map[string]*plane.Attached{}, gone: map[string]bool{}, own: map[netip.Addr]bool{}, ends: map[int]objects.EdgeEdgeEnd{},
	}
	for _, name := range []string{cfg.Clients, cfg.World} {
		if err := l.findLink(name); err != nil {
			return nil, err
		}
	}
	spec, err := objects.LoadEdge()
	if err != nil {
		return nil, fmt.Errorf("read the edge programs: %w", err)
	}
	if l.counters.Names, err = plane.CounterNames(spec); err != nil {
		return nil, err
	}
	if err := l.prepare(spec, change); err != nil {
		return nil, err
	}
	if err := spec.LoadAndAssign(&l.objs, nil); err != nil {
		return nil, plane.LoadError("edge", err)
	}
	l.counters.Counts = l.objs.Counters
	if l.served, err = plane.NewServed(l.objs.Served, l.objs.Strangers, false, l.sides()...); err == nil {
		l.grace, err = plane.NewGrace()
	}
	if err == nil {
		err = l.Apply(cfg)
	}
	if err == nil {
		l.began, err = l.clock()
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// prepare sets the programs' constants and the size of the table of flows.
func (l *LB) prepare(spec *ebpf.CollectionSpec, change func(*ebpf.CollectionSpec) error) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count the CPUs: %w", err)
	}
	spec.Maps[objects.EdgeMapEdgeFlows].MaxEntries = uint32(l.cfg.Flows.Entries)
	spec.Maps[objects.EdgeMapEdgeRecentFlows].MaxEntries = uint32(cpus) << topo.EdgeRecentBits
	err = errors.Join(
		spec.Variables[objects.EdgeVarEdgeMacs].Set(l.macs()),
		spec.Variables[objects.EdgeVarFlowKey].Set(policy.NewDigestKey(l.cfg.Key)),
		spec.Variables[objects.EdgeVarEdgeRecoversAll].Set(l.cfg.RecoverAll),
		spec.Variables[objects.EdgeVarEdgeIdleNs].Set(uint64(l.cfg.Flows.Idle)),
		spec.Variables[objects.EdgeVarLimitSecret].Set(plane.Secret()),
		spec.Variables[objects.EdgeVarTickNs].Set(uint64(plane.Tick())))
	if err == nil && change != nil {
		err = change(spec)
	}
	if err != nil {
		return fmt.Errorf("set the programs' constants: %w", err)
	}
	return nil
}

// SetNextHop gives a node the neighbour that its packets go to. Without one, the zero MAC,
// the node gets no packets, and its flows go to other instances.
func (l *LB) SetNextHop(server int, mac topo.MAC) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.ends[server]
	if !known {
		return fmt.Errorf("there is no node %d", server)
	}
	return l.setEnd(server, plane.Toward(e, mac))
}

// SetCores gives a node as many cores, at most those of its configuration: flows of others go to other
// instances.
func (l *LB) SetCores(server, cores int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.ends[server]
	if !known {
		return fmt.Errorf("there is no node %d", server)
	}
	e.Cores = uint16(cores)
	return l.setEnd(server, e)
}

func (l *LB) setEnd(server int, e objects.EdgeEdgeEnd) error {
	if err := l.objs.EdgeNodes.Put(uint32(server), e); err != nil {
		return fmt.Errorf("write node %d: %w", server, err)
	}
	l.ends[server] = e
	return nil
}

// Address is this host's address at the tunnel to a node; the zero Addr for another node.
func (l *LB) Address(server int) netip.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, known := l.ends[server]
	if !known {
		return netip.Addr{}
	}
	return plane.From(&e)
}

// Close detaches the programs and frees them with all flows.
func (l *LB) Close() error {
	errs := []error{l.Detach(), l.grace.Close(), l.objs.Close()}
	if l.prober != nil {
		errs = append(errs, l.prober.Close())
	}
	return errors.Join(errs...)
}

// Counters returns every reason that the programs count.
func (l *LB) Counters() ([]dataplane.Counter, error) { return l.counters.Counters() }

// Objects are the programs and maps in the kernel, for tests.
func (l *LB) Objects() *objects.EdgeObjects { return &l.objs }

// Count is the packets of an instance so far, by the age of their flow, and its new flows.
type Count struct {
	Packets weights.Packets
	Flows   uint64
}

var _ = [1]int{}[topo.EdgeAges-weights.Ages] // the classes are the programs'

// Counts returns those of a service's instances, in the order of its configuration.
func (l *LB) Counts(service int) (all []Count, err error) {
	for _, number := range l.numbersOf(service) {
		var perCPU []objects.EdgeEdgeCount
		if err := l.objs.EdgeCounts.Lookup(number, &perCPU); err != nil {
			return nil, fmt.Errorf("read the counts of service %d: %w", service, err)
		}
		var sum Count
		for _, c := range perCPU {
			for class, n := range c.Packets {
				sum.Packets[class] += n
			}
			sum.Flows += c.Flows
		}
		all = append(all, sum)
	}
	return all, nil
}

// Verified reports the verifier's work on the programs.
func (l *LB) Verified() ([]dataplane.Verified, error) {
	return plane.VerifiedOf(map[string]*ebpf.Program{
		objects.EdgeProgEdgeClients: l.objs.EdgeClients, objects.EdgeProgEdgeWorld: l.objs.EdgeWorld,
		objects.EdgeProgEdgeNew: l.objs.EdgeNew, objects.EdgeProgEdgeBack: l.objs.EdgeBack, objects.EdgeProgEdgeAnswer: l.objs.EdgeAnswer,
		objects.EdgeProgEdgeUnbound: l.objs.EdgeUnbound,
		objects.EdgeProgEdgeNarrow:  l.objs.EdgeNarrow,
	}, objects.EdgeProgEdgeClients, objects.EdgeProgEdgeWorld, objects.EdgeProgEdgeNew, objects.EdgeProgEdgeBack, objects.EdgeProgEdgeAnswer, objects.EdgeProgEdgeUnbound, objects.EdgeProgEdgeNarrow)
}

// idleFlows reads the table of flows and calls f with the digests of those that are idle now, in
// pieces.
func (l *LB) idleFlows(now time.Duration, f func(hashes []uint64) error) (kept uint64, err error) {
	var cursor ebpf.MapBatchCursor
	keys, values := make([]uint64, sweptAtOnce), make([]objects.EdgeEdgeFlow, sweptAtOnce)
	for {
		n, err := l.objs.EdgeFlows.BatchLookup(&cursor, keys, values, nil)
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return kept, fmt.Errorf("read the flows: %w", err)
		}
		var idle []uint64
		for i := range n {
			if uint64(now)>>seenShift-values[i].Seen >= uint64(l.idle)>>seenShift {
				idle = append(idle, keys[i])
			}
		}
		kept += uint64(n - len(idle))
		if err := f(idle); err != nil || last {
			return kept, err
		}
	}
}
