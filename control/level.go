package control

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"proffer/balancer"
	"proffer/dataplane/edge"
	"proffer/topo"
	"proffer/weights"
)

// Edge is the part of an edge LB's data plane that counts flows and weighs instances.
type Edge interface {
	Counts(service int) ([]edge.Count, error)
	SetWeights(service int, weights []float64) error
}

// LevelEvery is how often an edge LB weighs its cores (EdgeBalance §3).
const LevelEvery = 30 * time.Millisecond

// Overload of the average core, above which another node is wanted, and how long a wish stands.
const (
	overload = 0.95
	patience = 10 * time.Second
)

// Level is a core as its edge LB sees it.
type Level struct {
	Server, Core   int
	Load           float64 // predicted by the packets and their costs
	Weight         float64 // for new flows
	Packets, Flows uint64  // of all services so far
}

// Levels levels the cores of an edge LB by its counters. One goroutine owns it.
type Levels struct {
	plane   Edge
	cfg     *topo.EdgeLB
	decides *balancer.Balancer
	levels  []Level
	at      map[topo.EdgeInstance]int // the core of an instance without its weight
	packets [][]weights.Packets
	written map[int][]float64 // of each service: the weights that the plane has
}

// NewLevels begins with the weights of cfg, which the plane has. It fails on costs that no packet has.
func NewLevels(plane Edge, cfg *topo.EdgeLB) (*Levels, error) {
	l := &Levels{plane: plane, cfg: cfg, at: map[topo.EdgeInstance]int{}, written: map[int][]float64{}}
	var stated []float64
	var costs weights.Costs
	for _, n := range cfg.Nodes {
		for core := range n.Cores {
			l.at[topo.EdgeInstance{Server: n.Server, Core: core}] = len(l.levels)
			l.levels = append(l.levels, Level{Server: n.Server, Core: core})
			stated = append(stated, float64(n.Weight))
			costs = append(costs, costsOf(cfg))
			l.packets = append(l.packets, make([]weights.Packets, len(cfg.Services)))
		}
	}
	var err error
	settings := balancer.Settings{Costs: costs, Weigher: weigher(cfg.Balance, stated), Overload: overload, Patience: patience}
	if l.decides, err = balancer.New(settings); err != nil {
		return nil, err
	}
	for core, weight := range stated {
		if weight == 0 {
			l.decides.Leave(core)
		}
	}
	return l, nil
}

func costsOf(cfg *topo.EdgeLB) (all []weights.Curve) {
	for _, s := range cfg.Services {
		all = append(all, weights.Fixed(float64(s.Cost.Nanoseconds())))
	}
	return all
}

func weigher(rule topo.Balance, stated []float64) balancer.Weigher {
	if rule == topo.RoundRobin {
		return weights.NewStatic(stated)
	}
	return weights.NewLeveller(len(stated))
}

// Tick reads the counters, decides and writes the weights of new flows, at a monotonic time. It reports
// whether another node is wanted.
func (l *Levels) Tick(now time.Duration) (enlarge bool, err error) {
	if err := l.read(); err != nil {
		return false, err
	}
	d := l.decides.Tick(now, balancer.Reading{Packets: l.packets})
	for i := range l.levels {
		l.levels[i].Load, l.levels[i].Weight = d.Loads[i], d.Weights[i]
	}
	return d.Enlarge, l.write()
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
			now = append(now, l.levels[l.coreOf(i)].Weight)
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

// Levels are the cores, in the order of the configuration, at the last tick.
func (l *Levels) Levels() []Level { return slices.Clone(l.levels) }
