// Package nf is the data plane of EdgeBalance's datapath nodes: it loads
// bpf/edge/nf.bpf.c, attaches it to a link, and puts the functions of each service's chain
// in their places (EdgeBalance §2, §3).
package nf

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"proffer/dataplane"
	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/topo"
)

// Node is the data plane of a datapath node.
type Node struct {
	plane.Lasting
	change  func(*ebpf.CollectionSpec) error // of tests, to the programs before they are loaded
	notes   plane.Notes[notes]
	earlier []io.Closer // of the programs before these, until the next sweep

	mu      sync.Mutex // of the rest
	*loaded            // for the configuration of now
	link    *plane.Attached
	joined  []*plane.Attached // to user space
	hops    topo.NextHops     // over the link
}

// loaded is the programs for a configuration, with their maps.
type loaded struct {
	cfg      *topo.Datapath
	counters plane.Plane
	objs     objects.NFObjects
	rest     *ebpf.Collection            // all that objs has no field for
	programs map[string]*ebpf.Program    // all, by their names in C
	shared   map[string]*ebpf.Map        // with the programs for a cpumap, by their names in C
	cores    *ebpf.Collection            // the same programs for a cpumap, but node_core; nil: all runs as XDP
	entries  []*ebpf.Program             // of each core: a node_core of its own, so that the kernel counts its time apart
	pools    map[netip.Addr]uint32       // of NAT ports, by public address
	reported []reported                  // of each virtual core
	ends     map[int]objects.EdgeEdgeEnd // of LBs, by their place in cfg
}

// Close frees them.
func (l *loaded) Close() error {
	var errs []error
	for _, p := range l.entries {
		errs = append(errs, p.Close())
	}
	if l.cores != nil {
		l.cores.Close()
	}
	l.rest.Close()
	return errors.Join(append(errs, l.objs.Close())...)
}

// New loads the programs for cfg and fills their maps; Attach attaches them. Changed packets
// return to no LB until SetNextHop.
func New(cfg *topo.Datapath) (*Node, error) { return NewWith(cfg, nil) }

// NewWith is New for tests, which change the programs before they are loaded.
func NewWith(cfg *topo.Datapath, change func(*ebpf.CollectionSpec) error) (_ *Node, err error) {
	n := &Node{change: change, loaded: loadedFor(cfg)}
	if n.link, err = plane.FindLink(cfg.Link); err != nil {
		return nil, err
	}
	spec, err := n.spec()
	if err != nil {
		return nil, err
	}
	if n.Lasting, err = plane.OpenLasting(cfg.Pin, n.link.Interface, plane.NFLayout); err != nil {
		return nil, err
	}
	adopted, was := n.adopt(spec)
	if err = n.prepare(spec, was); err == nil {
		err = n.load(spec, adopted)
	}
	if err != nil {
		return nil, errors.Join(err, n.Lasting.Close())
	}
	if n.notes, err = plane.NewNotes(was); err == nil {
		err = n.adoptPools()
	}
	if err == nil {
		err = n.fill(spec)
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func loadedFor(cfg *topo.Datapath) *loaded {
	return &loaded{cfg: cfg, ends: map[int]objects.EdgeEdgeEnd{}, pools: map[netip.Addr]uint32{}}
}

// spec reads the programs.
func (n *Node) spec() (spec *ebpf.CollectionSpec, err error) {
	cfg := n.cfg
	if cfg.Server < 0 || cfg.Server >= topo.MaxEdgeServers || cfg.Cores < 1 || cfg.Cores > topo.MaxEdgeCores {
		return nil, fmt.Errorf("node %d with %d cores: want a number up to %d, and 1 to %d cores", cfg.Server, cfg.Cores, topo.MaxEdgeServers-1, topo.MaxEdgeCores)
	}
	if spec, err = objects.LoadNF(); err != nil {
		return nil, fmt.Errorf("read the nf programs: %w", err)
	}
	n.counters.Names, err = plane.CounterNames(spec)
	return spec, err
}

// Apply goes to another configuration while packets flow: programs for it are loaded around the flows of these, and
// take their place between two packets. Name, number, link and pin stay, and functions in user space.
func (n *Node) Apply(next *topo.Datapath) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	fresh := &Node{change: n.change, loaded: loadedFor(next), link: n.link, notes: n.notes}
	maps.Copy(fresh.pools, n.pools)
	spec, err := fresh.spec()
	if err != nil {
		return err
	}
	was, err := n.notes.Read()
	if err != nil {
		return err
	}
	kept := map[string]*ebpf.Map{}
	for _, name := range append(stateMaps, keptMaps...) {
		kept[name] = n.shared[name]
	}
	if err := fresh.prepare(spec, was); err != nil {
		return err
	}
	if err := fresh.load(spec, kept); err != nil {
		return err
	}
	err = fresh.fill(spec)
	if err == nil {
		err = fresh.Reach("", n.hops)
	}
	if err == nil && n.link.IsOn() {
		err = n.Lasting.Attach(map[*plane.Attached]*ebpf.Program{n.link: fresh.objs.Node}, fresh.lasting())
	}
	if err != nil {
		return errors.Join(err, fresh.loaded.Close())
	}
	n.earlier = append(n.earlier, n.loaded)
	n.loaded = fresh.loaded
	return n.rejoin()
}

// prepare sets the programs' constants.
func (n *Node) prepare(spec *ebpf.CollectionSpec, now notes) error {
	err := errors.Join(
		spec.Variables[objects.NFVarNodeServer].Set(uint32(n.cfg.Server)),
		spec.Variables[objects.NFVarNodeCores].Set(uint32(n.cfg.Cores)),
		spec.Variables[objects.NFVarNodeSpreads].Set(n.cfg.Spread),
		spec.Variables[objects.NFVarIdleNs].Set(uint64(n.cfg.Idle)),
		spec.Variables[objects.NFVarLingerNs].Set(uint64(n.cfg.Linger)),
		spec.Variables[objects.NFVarFlowKey].Set(policy.NewDigestKey(now.Key)),
		spec.Variables[objects.NFVarLimitSecret].Set(plane.Secret()),
		spec.Variables[objects.NFVarTickNs].Set(uint64(plane.Tick())))
	if err == nil && n.change != nil {
		err = n.change(spec)
	}
	if err != nil {
		return fmt.Errorf("set the programs' constants: %w", err)
	}
	return nil
}

// load loads all programs and maps. A function's need no row here: those for a cpumap share every map but
// the arrays of programs, which the kernel takes for one kind of programs alone.
func (n *Node) load(spec *ebpf.CollectionSpec, adopted map[string]*ebpf.Map) (err error) {
	if n.rest, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: adopted}); err != nil {
		return plane.LoadError("nf", err)
	}
	n.programs, n.shared = maps.Clone(n.rest.Programs), maps.Clone(n.rest.Maps)
	maps.DeleteFunc(n.shared, func(_ string, m *ebpf.Map) bool { return m.Type() == ebpf.ProgramArray })
	if err := n.rest.Assign(&n.objs); err != nil {
		n.rest.Close()
		return err
	}
	n.counters.Counts = n.objs.Counters
	return nil
}

// fill writes all that the configuration names.
func (n *Node) fill(spec *ebpf.CollectionSpec) error {
	own, err := plane.ReadAddresses()
	if err != nil {
		return err
	}
	for i, addr := range n.cfg.LBs {
		e, err := plane.NewEnd(n.link.Interface, own, addr)
		if err != nil {
			return fmt.Errorf("LB %v: %w", addr, err)
		}
		n.ends[i] = e
		if err := n.objs.NodeLbs.Put(addr.As16(), e); err != nil {
			return fmt.Errorf("write LB %v: %w", addr, err)
		}
	}
	for _, p := range n.cfg.Clients {
		if err := n.objs.NodeClients.Put(plane.PrefixKey(p), uint32(1)); err != nil {
			return fmt.Errorf("write prefix %v of the client network: %w", p, err)
		}
	}
	if err := n.fillChains(n.objs.NodeFunctions, n.programs); err != nil {
		return err
	}
	if !n.cfg.Spread {
		return nil
	}
	return n.spread(spec)
}

// outside are the programs that no core's chain has.
var outside = []string{
	objects.NFProgNode, objects.NFProgSweepNat, objects.NFProgSweepFirewall,
	objects.NFProgNodeHand, objects.NFProgNodeResume,
}

// spread loads the programs for a cpumap, around the maps of the first programs but the arrays of
// programs, and gives each core its CPU.
func (n *Node) spread(spec *ebpf.CollectionSpec) (err error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count the CPUs: %w", err)
	}
	if n.cfg.Cores > cpus {
		return fmt.Errorf("cores: %d with cpus: own, and this machine has %d CPUs: give cores at most %[2]d, or cpus: shared", n.cfg.Cores, cpus)
	}
	spec = spec.Copy()
	for name := range spec.Programs {
		if slices.Contains(outside, name) {
			delete(spec.Programs, name)
			continue
		}
		spec.Programs[name].AttachType = ebpf.AttachXDPCPUMap
	}
	delete(spec.Maps, objects.NFMapNodePrograms)
	rest := spec.Copy()
	delete(rest.Programs, objects.NFProgNodeCore)
	if n.cores, err = ebpf.NewCollectionWithOptions(rest, ebpf.CollectionOptions{MapReplacements: n.shared}); err != nil {
		return plane.LoadError("nf (cpumap)", err)
	}
	if err := n.fillChains(n.cores.Maps[objects.NFMapNodeFunctions], n.cores.Programs); err != nil {
		return err
	}
	for c := range n.cfg.Cores {
		core, err := n.entryOf(spec)
		if err != nil {
			return err
		}
		const queue = 512 // packets, as in the paper's ring
		value := struct{ Queue, Program uint32 }{queue, uint32(core.FD())}
		if err := n.objs.NodeCpus.Put(uint32(c), value); err != nil {
			return fmt.Errorf("give core %d its CPU: %w", c, err)
		}
	}
	return nil
}

// entryOf loads the program with which packets begin at a core, around the maps of the others.
func (n *Node) entryOf(spec *ebpf.CollectionSpec) (*ebpf.Program, error) {
	one := spec.Copy()
	for name := range one.Programs {
		if name != objects.NFProgNodeCore {
			delete(one.Programs, name)
		}
	}
	loaded, err := ebpf.NewCollectionWithOptions(one, ebpf.CollectionOptions{MapReplacements: n.cores.Maps})
	if err != nil {
		return nil, plane.LoadError("nf (core)", err)
	}
	defer loaded.Close()
	entry := loaded.DetachProgram(objects.NFProgNodeCore)
	n.entries = append(n.entries, entry)
	return entry, nil
}

// Busy is for how long the kernel has run the programs of each core (dataplane.CountRunTime). Cores that
// share CPUs run the same program, so nil: only a core alone is known. Virtual cores have times of their own.
func (n *Node) Busy() (busy []time.Duration, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isVirtual() {
		return n.virtualBusy()
	}
	of := n.entries
	if !n.cfg.Spread && n.cfg.Cores == 1 {
		of = []*ebpf.Program{n.objs.Node}
	}
	for _, p := range of {
		s, err := p.Stats()
		if err != nil {
			return nil, fmt.Errorf("read the run time of a core's program: %w", err)
		}
		busy = append(busy, s.Runtime)
	}
	return busy, nil
}

// Detach takes the programs off the link, and removes the pins.
func (n *Node) Detach() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Lasting.Detach(n.link)
}

// Close frees the memory of this process; pinned programs go on, with the functions' state.
func (n *Node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.letGo()
	errs := []error{n.Lasting.Close(n.link), n.notes.Map().Close()}
	for _, l := range n.joined {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, n.loaded.Close())...)
}

// Counters returns every reason that the programs count.
func (n *Node) Counters() ([]dataplane.Counter, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.counters.Counters()
}

// Objects are the programs and maps in the kernel, for tests.
func (n *Node) Objects() *objects.NFObjects { return &n.objs }

// Count is the packets of a service at a core so far, and their bytes.
type Count struct{ Packets, Bytes uint64 }

// Count returns that of a core and a service.
func (n *Node) Count(core, service int) (sum Count, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var perCPU []objects.NFNodeCount
	if err := n.objs.NodeCounts.Lookup(uint32(core*topo.MaxEdgeServices+service), &perCPU); err != nil {
		return sum, fmt.Errorf("read the count of core %d, service %d: %w", core, service, err)
	}
	for _, c := range perCPU {
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
	}
	return sum, nil
}

// Verified reports the verifier's work on the programs.
func (n *Node) Verified() ([]dataplane.Verified, error) {
	return plane.VerifiedOf(n.programs, slices.Sorted(maps.Keys(n.programs))...)
}
