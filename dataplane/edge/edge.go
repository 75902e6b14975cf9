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
	plane.Lasting
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
	notes    plane.Notes[notes]
	before   *ebpf.Map // an earlier daemon's flows, in a table of another size, until they are copied

	mu       sync.Mutex                  // of the rest, which next hops, probes and a change of the host meet
	links    map[string]*plane.Attached  // by their names in the configuration
	gone     map[string]bool             // links to nodes that were deleted
	attached bool                        // Attach was called
	own      map[netip.Addr]bool         // addresses of this host, as they were written
	ends     map[int]objects.EdgeEdgeEnd // of nodes, as they were written
	hops     map[string]topo.NextHops    // over links to nodes
	down     map[int]bool                // nodes that get no packets whatever their next hop
}

// New loads the programs for cfg and fills their maps; Attach attaches them. No node takes
// flows until SetNextHop.
func New(cfg *topo.EdgeLB) (*LB, error) { return NewWith(cfg, nil) }

// NewWith is New for benches, which change the programs before they are loaded.
func NewWith(cfg *topo.EdgeLB, change func(*ebpf.CollectionSpec) error) (*LB, error) {
	return NewOf(cfg, dataplane.Shipped(objects.LoadEdge, change))
}

// NewOf is New with programs of the caller's.
func NewOf(cfg *topo.EdgeLB, programs dataplane.Programs) (_ *LB, err error) {
	l := &LB{
		cfg:  &topo.EdgeLB{Clients: cfg.Clients, World: cfg.World, Key: cfg.Key, Flows: cfg.Flows, RecoverAll: cfg.RecoverAll},
		idle: cfg.Flows.Idle, numbers: map[uint32]uint32{}, banks: map[int]uint32{}, switched: map[int]int{},
		links: map[string]*plane.Attached{}, gone: map[string]bool{}, own: map[netip.Addr]bool{}, ends: map[int]objects.EdgeEdgeEnd{}, hops: map[string]topo.NextHops{},
	}
	for _, name := range []string{cfg.Clients, cfg.World} {
		if err := l.findLink(name); err != nil {
			return nil, err
		}
	}
	spec, err := programs.Read()
	if err != nil {
		return nil, fmt.Errorf("read the edge programs: %w", err)
	}
	if l.counters.Names, err = plane.CounterNames(spec); err != nil {
		return nil, err
	}
	if err := l.prepare(spec, programs.Change); err != nil {
		return nil, err
	}
	if l.Lasting, err = plane.OpenLasting(cfg.Pin, l.links[cfg.Clients].Interface, plane.EdgeLayout); err != nil {
		return nil, err
	}
	adopted := l.adopt(spec)
	if err := programs.Load(spec, &l.objs, &ebpf.CollectionOptions{MapReplacements: adopted}); err != nil {
		return nil, errors.Join(plane.LoadError("edge", err), l.Lasting.Close())
	}
	l.counters.Counts = l.objs.Counters
	if l.served, err = plane.NewServed(l.objs.Served, l.objs.Strangers, false, l.sides()...); err == nil {
		l.grace, err = plane.NewGrace()
	}
	if err == nil {
		err = l.adoptNumbers(cfg)
	}
	if err == nil {
		l.notes, err = plane.NewNotes(notes{Key: markOf(cfg.Key)})
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

// SetNextHop gives a node the neighbour that its packets go to. Without a neighbour, the zero MAC,
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

// Reach gives the nodes on a link their next hops.
func (l *LB) Reach(link string, hops topo.NextHops) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hops[link] = hops
	return l.turn()
}

// SetDown names the nodes that get no packets, whatever their next hops.
func (l *LB) SetDown(servers map[int]bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = servers
	return l.turn()
}

// turn turns the nodes' ends to their next hops.
func (l *LB) turn() error {
	for _, n := range l.cfg.Nodes {
		was := l.ends[n.Server]
		if now := plane.Toward(was, l.hopTo(n)); now != was {
			if err := l.setEnd(n.Server, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// hopTo is the next hop of a node; the zero MAC: it gets no packets.
func (l *LB) hopTo(n topo.EdgeNode) topo.MAC {
	if l.down[n.Server] {
		return topo.MAC{}
	}
	mac, _ := l.hops[n.Link].Lookup(n.Addr)
	return mac
}

// Unresolved has nothing to wait for: packets go to the nodes of the configuration alone.
func (l *LB) Unresolved() (netip.Addr, error) { return netip.Addr{}, plane.ErrNone }

// Suspects are none: nodes sign no packets.
func (l *LB) Suspects() ([]dataplane.Suspect, error) { return nil, nil }

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

// Close frees the memory of this process; pinned programs go on, with their flows.
func (l *LB) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	errs := []error{l.Lasting.Close(l.all()...), l.grace.Close(), l.objs.Close(), l.notes.Map().Close(), l.before.Close()}
	l.attached = false
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
	err = eachFlow(l.objs.EdgeFlows, func(hashes []uint64, flows []objects.EdgeEdgeFlow) error {
		var idle []uint64
		for i, hash := range hashes {
			if uint64(now)>>seenShift-flows[i].Seen >= uint64(l.idle)>>seenShift {
				idle = append(idle, hash)
			}
		}
		kept += uint64(len(hashes) - len(idle))
		return f(idle)
	})
	return kept, err
}
