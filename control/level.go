package control

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"proffer/balancer"
	"proffer/dataplane/edge"
	"proffer/report"
	"proffer/topo"
	"proffer/weights"
)

// Edge is the part of an edge LB's data plane that counts flows and weighs instances.
type Edge interface {
	Counts(service int) ([]edge.Count, error)
	SetWeights(service int, weights []float64) error
	SetCores(server, cores int) error // flows of others go elsewhere
}

// LevelEvery is how often an edge LB weighs its cores (EdgeBalance §3).
const LevelEvery = 30 * time.Millisecond

// overload of the average core, above which another node is wanted.
const overload = 0.95

// Patience is how long a wish for another node stands.
const Patience = 10 * time.Second

// Level is a core as its edge LB sees it.
type Level struct {
	Server, Core   int
	Load           float64 // predicted by the packets and their costs
	Measured       float64 // as its node reported it last; NaN: it is not known
	Weight         float64 // for new flows
	Absent         bool    // its node has fewer cores
	Down           bool    // its node is down, and so it has no weight
	Packets, Flows uint64  // of all services so far
}

// Levels levels the cores of an edge LB by its counters. One goroutine owns it.
type Levels struct {
	plane   Edge
	cfg     *topo.EdgeLB
	nodes   *NodePoller // nil: they report nothing
	decides *balancer.Balancer
	levels  []Level
	node    []int                     // of each core: its place in the configuration
	at      map[topo.EdgeInstance]int // the core of an instance without its weight
	costs   [][]weights.Curve         // as they were stated, measured or assumed, by core and service
	sources [][]CostSource            // of these
	packets [][]weights.Packets
	written map[int][]float64 // of each service: the weights that the plane has
	stated  []float64         // of each core
	down    map[int]bool      // nodes that take no new flows whatever their weight
	settled bool              // cores have joined or left, by both
}

// NewLevels begins with the weights of cfg, which the plane has, and with the costs of the levels before
// it, which may be nil. Where nothing but weights changes, their balancer goes on, with all that it has
// learned of the flows' lives. It fails on costs that no packet has.
func NewLevels(plane Edge, cfg *topo.EdgeLB, before *Levels) (*Levels, error) {
	l := &Levels{plane: plane, cfg: cfg, at: map[topo.EdgeInstance]int{}, written: map[int][]float64{}}
	if cfg.ReportKey != nil {
		l.nodes = NewNodePoller(cfg, before.poller())
	}
	var costs weights.Costs
	for i, n := range cfg.Nodes {
		for core := range n.Cores {
			l.at[topo.EdgeInstance{Server: n.Server, Core: core}] = len(l.levels)
			l.levels = append(l.levels, Level{Server: n.Server, Core: core, Measured: math.NaN()})
			l.node = append(l.node, i)
			l.stated = append(l.stated, float64(n.Weight))
			given, sources := l.costsAt(i)
			l.costs, l.sources = append(l.costs, given), append(l.sources, sources)
			costs = append(costs, slices.Clone(given))
			l.packets = append(l.packets, make([]weights.Packets, len(cfg.Services)))
		}
	}
	if l.sameBut(before) {
		l.decides = before.decides
		return l, nil
	}
	var err error
	settings := balancer.Settings{Costs: costs, Stated: statedCosts(cfg), Weigher: weigher(cfg.Balance, l.stated),
		Monitor: cfg.Balance == topo.ByMonitor, Overload: overload, Patience: Patience}
	if l.decides, err = balancer.New(settings); err != nil {
		return nil, err
	}
	l.inherit(before)
	return l, nil
}

// sameBut: cores, services and their costs are those of the levels before, and the rule learns.
func (l *Levels) sameBut(before *Levels) bool {
	sameService := func(a, b topo.EdgeService) bool { return a.Number == b.Number && a.Cost == b.Cost }
	return before != nil && l.cfg.Balance != topo.RoundRobin && l.cfg.Balance == before.cfg.Balance &&
		maps.Equal(l.at, before.at) && slices.EqualFunc(l.cfg.Services, before.cfg.Services, sameService) &&
		slices.EqualFunc(l.costs, before.costs, slices.Equal[[]weights.Curve])
}

// SetDown takes new flows from the cores of nodes that are down, and gives them back to those that answer
// again. Drained cores have none.
func (l *Levels) SetDown(down map[int]bool) {
	l.settled = l.settled && maps.Equal(l.down, down)
	l.down = maps.Clone(down)
}

// settle lets cores join and leave by the weights of the configuration, by the nodes that are down, and by
// the cores that nodes have.
func (l *Levels) settle() error {
	for core, weight := range l.stated {
		own := &l.levels[core]
		own.Absent = l.nodes != nil && own.Core >= l.nodes.Cores(l.node[core])
		own.Down = l.down[own.Server]
		if weight == 0 || own.Down || own.Absent {
			l.decides.Leave(core)
		} else {
			l.decides.Join(core)
		}
	}
	if l.nodes != nil {
		for i, n := range l.cfg.Nodes {
			if err := l.plane.SetCores(n.Server, l.nodes.Cores(i)); err != nil {
				return err
			}
		}
	}
	l.settled = true
	return nil
}

func (l *Levels) poller() *NodePoller {
	if l == nil {
		return nil
	}
	return l.nodes
}

// costsAt is the costs of all services at a node, with their sources.
func (l *Levels) costsAt(node int) (all []weights.Curve, sources []CostSource) {
	for i := range l.cfg.Services {
		c, source := l.nodes.Cost(node, &l.cfg.Services[i])
		all, sources = append(all, c), append(sources, source)
	}
	return all, sources
}

// statedCosts are the services whose cost is in the file.
func statedCosts(cfg *topo.EdgeLB) (all []int) {
	for i, s := range cfg.Services {
		if s.Cost != 0 {
			all = append(all, i)
		}
	}
	return all
}

// inherit takes the costs that were learned from the same nodes.
func (l *Levels) inherit(before *Levels) {
	if before == nil {
		return
	}
	for core := range l.levels {
		n := &l.cfg.Nodes[l.node[core]]
		was, known := before.at[topo.EdgeInstance{Server: n.Server, Core: l.levels[core].Core}]
		for service, s := range l.cfg.Services {
			j := slices.IndexFunc(before.cfg.Services, func(b topo.EdgeService) bool { return b.Number == s.Number })
			if known && j >= 0 && s.Cost == 0 && before.costs[was][j] == l.costs[core][service] {
				l.decides.SetCost(core, service, before.decides.Cost(was, j))
			}
		}
	}
}

func weigher(rule topo.Balance, stated []float64) balancer.Weigher {
	switch rule {
	case topo.RoundRobin:
		return weights.NewStatic(stated)
	case topo.ByMonitor:
		return weights.NewPID(len(stated), weights.PublishedGains())
	default:
		return weights.NewLeveller(len(stated))
	}
}

// Tick reads the counters, decides and writes the weights of new flows, at a monotonic time. It reports
// whether another node is wanted.
func (l *Levels) Tick(now time.Duration) (enlarge bool, err error) {
	if l.nodes != nil && l.nodes.Reshaped() {
		l.settled = false
	}
	if !l.settled {
		if err := l.settle(); err != nil {
			return false, err
		}
	}
	if err := l.read(); err != nil {
		return false, err
	}
	if l.nodes.Changed() {
		l.reprice()
	}
	d := l.decides.Tick(now, balancer.Reading{Packets: l.packets, Measured: l.measured()})
	for i := range l.levels {
		l.levels[i].Load, l.levels[i].Weight = d.Loads[i], d.Weights[i]
	}
	return d.Enlarge, l.write()
}

// reprice takes the costs that are no longer as they were.
func (l *Levels) reprice() {
	for core := range l.levels {
		now, sources := l.costsAt(l.node[core])
		l.sources[core] = sources
		for service, c := range now {
			if c != l.costs[core][service] {
				l.costs[core][service] = c
				l.decides.SetCost(core, service, c)
			}
		}
	}
}

// measured is the loads of all cores until the last tick: costs are learned from those of that tick
// alone, while a monitor keeps the last weights.
func (l *Levels) measured() []float64 {
	if l.nodes == nil {
		return nil
	}
	all := make([]float64, len(l.levels))
	for i := range l.levels {
		l.levels[i].Measured = l.nodes.Load(l.node[i], l.levels[i].Core, false)
		all[i] = l.nodes.Load(l.node[i], l.levels[i].Core, l.cfg.Balance != topo.ByMonitor)
	}
	return all
}

// Ask is the requests to the nodes; there are none without a key for their reports.
func (l *Levels) Ask(at time.Duration, random func() uint64) ([]report.NodeMessage, []Change) {
	if l.nodes == nil {
		return nil, nil
	}
	return l.nodes.Ask(at, random)
}

// Answer takes the answer of the node at a place of the configuration.
func (l *Levels) Answer(at time.Duration, node int, m *report.NodeMessage) *Change {
	if l.nodes == nil {
		return nil
	}
	return l.nodes.Answer(at, node, m)
}

// Price is the cost of a service at a node.
type Price struct {
	Node        string
	Service     int
	Nanoseconds float64 // a packet, at the rates of the node's cores on average
	Source      CostSource
}

// Prices are those of all nodes and services, as they are by now.
func (l *Levels) Prices() (all []Price) {
	core := 0
	for _, n := range l.cfg.Nodes {
		for service, s := range l.cfg.Services {
			sum := 0.0
			for c := range n.Cores {
				sum += l.decides.CostNow(core+c, service)
			}
			all = append(all, Price{n.Name, s.Number, sum / float64(n.Cores), l.sources[core][service]})
		}
		core += n.Cores
	}
	return all
}

// read takes the counters of all instances.
func (l *Levels) read() error {
	for i := range l.levels {
		l.levels[i].Packets, l.levels[i].Flows = 0, 0
	}
	for service, s := range l.cfg.Services {
		counts, err := l.plane.Counts(s.Number)
		if err != nil {
			return err
		}
		if len(counts) != len(s.Instances) {
			return fmt.Errorf("service %d counts %d instances, not %d", s.Number, len(counts), len(s.Instances))
		}
		for i, c := range counts {
			core := l.coreOf(s.Instances[i])
			l.packets[core][service] = c.Packets
			l.levels[core].Packets += c.Packets.Total()
			l.levels[core].Flows += c.Flows
		}
	}
	return nil
}

func (l *Levels) coreOf(i topo.EdgeInstance) int {
	return l.at[topo.EdgeInstance{Server: i.Server, Core: i.Core}]
}

// write gives each service the weights that are not as they were.
func (l *Levels) write() error {
	var errs []error
	for _, s := range l.cfg.Services {
		var now []float64
		for _, i := range s.Instances {
			now = append(now, l.weightOf(l.coreOf(i), s.Number))
		}
		if slices.Equal(now, l.written[s.Number]) {
			continue
		}
		if err := l.plane.SetWeights(s.Number, now); err != nil {
			errs = append(errs, err)
			continue
		}
		l.written[s.Number] = now
	}
	return errors.Join(errs...)
}

// weightOf is the weight of a service at a core.
func (l *Levels) weightOf(core, service int) float64 {
	if l.nodes != nil && l.nodes.Lacks(l.node[core], service) {
		return 0
	}
	return l.levels[core].Weight
}

// Problems lists the differences between the configuration and the reports of the nodes.
func (l *Levels) Problems() []string {
	if l.nodes == nil {
		return nil
	}
	return l.nodes.Problems()
}

// Levels are the cores, in the order of the configuration, at the last tick.
func (l *Levels) Levels() []Level { return slices.Clone(l.levels) }
