package control

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/dataplane/edge"
	"proffer/topo"
	"proffer/weights"
)

// counted is an edge LB that a test counts for.
type counted struct {
	counts  map[int][]edge.Count
	weights map[int][]float64
	cores   map[int]int // of nodes, as they were set last
	writes  int
	fails   error
}

func (c *counted) Counts(service int) ([]edge.Count, error) { return c.counts[service], nil }

func (c *counted) SetWeights(service int, w []float64) error {
	if c.fails == nil {
		c.weights[service] = slices.Clone(w)
		c.writes++
	}
	return c.fails
}

func (c *counted) SetCores(server, cores int) error {
	c.cores[server] = cores
	return c.fails
}

// levelled is two nodes, of two cores and of one, with two services of 1 µs and 10 µs a packet.
func levelled(rule topo.Balance) (*counted, *topo.EdgeLB) {
	cfg := &topo.EdgeLB{Balance: rule, Nodes: []topo.EdgeNode{{Server: 3, Cores: 2, Weight: 2}, {Server: 1, Cores: 1, Weight: 1}}}
	plane := &counted{counts: map[int][]edge.Count{}, weights: map[int][]float64{}, cores: map[int]int{}}
	for i, number := range []int{7, 5} {
		cfg.Services = append(cfg.Services, topo.EdgeService{Number: number, Cost: []time.Duration{time.Microsecond, 10 * time.Microsecond}[i],
			Instances: []topo.EdgeInstance{{Server: 1, Core: 0}, {Server: 3, Core: 0}, {Server: 3, Core: 1}}}) // not in the nodes' order
		plane.counts[number] = make([]edge.Count, 3)
	}
	return plane, cfg
}

func newLevels(t *testing.T, plane *counted, cfg *topo.EdgeLB) *Levels {
	t.Helper()
	l, err := NewLevels(plane, cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func tick(t *testing.T, l *Levels, n int) {
	t.Helper()
	if _, err := l.Tick(time.Duration(n) * LevelEvery); err != nil {
		t.Fatal(err)
	}
}

// downCores says of each core whether it is told down.
func downCores(l *Levels) (down []bool) {
	for _, core := range l.Levels() {
		down = append(down, core.Down)
	}
	return down
}

// TestLevelsDown: the cores of a node that is down have weight 0 until it answers again, and are told down as
// long as their weights are those; a drained node stays without.
func TestLevelsDown(t *testing.T) {
	for _, rule := range topo.Balances() {
		plane, cfg := levelled(rule)
		l := newLevels(t, plane, cfg)
		for i, c := range []struct {
			down map[int]bool
			want []bool // takes new flows: node 1, and both cores of node 3
		}{{nil, []bool{true, true, true}}, {map[int]bool{3: true}, []bool{true, false, false}}, {map[int]bool{1: true}, []bool{false, true, true}}, {nil, []bool{true, true, true}}} {
			was := downCores(l)
			l.SetDown(c.down)
			if told := downCores(l); !slices.Equal(told, was) {
				t.Errorf("%v, down %v: cores are told down %v before the weights, and were %v", rule, c.down, told, was)
			}
			tick(t, l, i+1)
			for j, core := range l.Levels() {
				if core.Down != c.down[core.Server] {
					t.Errorf("%v, down %v: core %d is told down: %v", rule, c.down, j, core.Down)
				}
			}
			for j, w := range plane.weights[7] {
				if w > 0 != c.want[j] {
					t.Errorf("%v, down %v: weights %v", rule, c.down, plane.weights[7])
				}
			}
		}
		cfg.Nodes[0].Weight = 0
		l = newLevels(t, plane, cfg)
		l.SetDown(map[int]bool{3: true})
		l.SetDown(nil)
		tick(t, l, 9)
		if w := plane.weights[7]; w[0] == 0 || w[1] != 0 || w[2] != 0 {
			t.Errorf("%v: node 3 is drained: weights %v", rule, w)
		}
	}
}

// TestLevelsPredict: a core's load is the packets of its services times their costs, at the node that
// has them, whatever the order of instances.
func TestLevelsPredict(t *testing.T) {
	plane, cfg := levelled(topo.ByModel)
	l := newLevels(t, plane, cfg)
	tick(t, l, 1)
	plane.counts[7][0] = edge.Count{Packets: weights.Packets{3: 6000}, Flows: 2} // of node 1: 6 ms of 30
	plane.counts[5][0] = edge.Count{Packets: weights.Packets{4: 600}, Flows: 1}  // 6 ms
	plane.counts[5][2] = edge.Count{Packets: weights.Packets{0: 900}, Flows: 9}  // of node 3, core 1: 9 ms
	tick(t, l, 2)
	want := []Level{{Server: 3}, {Server: 3, Core: 1, Load: .3, Packets: 900, Flows: 9}, {Server: 1, Load: .4, Packets: 6600, Flows: 3}}
	for i, got := range l.Levels() {
		load := got.Load
		if !math.IsNaN(got.Measured) {
			t.Errorf("core %d has a measured load, %v", i, got.Measured)
		}
		got.Load, got.Weight, got.Measured = want[i].Load, 0, 0
		if got != want[i] || math.Abs(load-want[i].Load) > 1e-9 {
			t.Errorf("core %d is %+v with load %v, want %+v", i, got, load, want[i])
		}
	}
}

// TestLevelsByModel: the core with an old flow of half a core gets less of the new flows than the others.
func TestLevelsByModel(t *testing.T) {
	plane, cfg := levelled(topo.ByModel)
	l := newLevels(t, plane, cfg)
	for n := range 200 { // 6 s
		for i := range 3 {
			plane.counts[7][i].Packets[0] += 3000 // new flows of 10 % of a core
			plane.counts[7][i].Packets[1] += 300
		}
		plane.counts[7][1].Packets[weights.Ages-1] += 15_000
		tick(t, l, n+1)
	}
	for _, service := range []int{7, 5} {
		if w := plane.weights[service]; len(w) != 3 || w[1] >= w[0]/2 || w[0] <= 0 || w[2] <= 0 {
			t.Errorf("service %d has weights %v, want the second much below the others", service, w)
		}
	}
}

// TestLevelsRoundRobin: the weights are the configuration's, whatever the loads, and are written once.
func TestLevelsRoundRobin(t *testing.T) {
	plane, cfg := levelled(topo.RoundRobin)
	l := newLevels(t, plane, cfg)
	for n := range 10 {
		plane.counts[7][1].Packets[0] += 30_000
		tick(t, l, n+1)
	}
	if w := plane.weights[7]; !slices.Equal(w, []float64{1, 2, 2}) || plane.writes != 2 {
		t.Errorf("weights %v after %d writes, want 1, 2, 2 after one for each service", w, plane.writes)
	}
}

// TestLevelsDrain: a node with weight 0 gets no new flows, by either rule.
func TestLevelsDrain(t *testing.T) {
	for _, rule := range topo.Balances() {
		plane, cfg := levelled(rule)
		cfg.Nodes[0].Weight = 0
		l := newLevels(t, plane, cfg)
		tick(t, l, 1)
		tick(t, l, 2)
		if w := plane.weights[5]; len(w) != 3 || w[0] <= 0 || w[1] != 0 || w[2] != 0 {
			t.Errorf("%s: weights %v, want the first alone", rule, w)
		}
	}
}

// TestLevelsWish: cores that are full for some ticks make the wish for another node.
func TestLevelsWish(t *testing.T) {
	plane, cfg := levelled(topo.ByModel)
	l := newLevels(t, plane, cfg)
	tick(t, l, 1)
	for n := range 3 {
		for i := range 3 {
			plane.counts[7][i].Packets[0] += 29_000
		}
		if wish, err := l.Tick(time.Duration(2+n) * LevelEvery); err != nil || wish != (n == 2) {
			t.Errorf("tick %d of loads of .97: wish %v (%v)", n, wish, err)
		}
	}
}

// TestLevelsMistakes: costs that no packet has are refused; weights that could not be written are
// written at the next tick.
func TestLevelsMistakes(t *testing.T) {
	plane, cfg := levelled(topo.RoundRobin)
	l := newLevels(t, plane, cfg)
	plane.fails = errors.New("no map")
	if _, err := l.Tick(LevelEvery); !errors.Is(err, plane.fails) {
		t.Errorf("got %v", err)
	}
	plane.fails = nil
	tick(t, l, 2)
	if plane.writes != 2 {
		t.Errorf("%d writes after a failure", plane.writes)
	}
	plane.counts[7] = plane.counts[7][:2]
	if _, err := l.Tick(3 * LevelEvery); err == nil || !strings.Contains(err.Error(), "service 7 counts 2 instances, not 3") {
		t.Errorf("got %v", err)
	}
	cfg.Services[1].Cost = 0
	if _, err := NewLevels(plane, cfg, nil); err == nil || !strings.Contains(err.Error(), "costs 0 ns a packet") {
		t.Errorf("got %v", err)
	}
}

// TestLevelsGoOn: a change of weights alone keeps all that was learned of the flows' lives: a node that
// joins gets the new flows at once, and the core with an elephant none.
func TestLevelsGoOn(t *testing.T) {
	plane, cfg := levelled(topo.ByModel)
	cfg.Nodes[1].Weight = 0
	l := newLevels(t, plane, cfg)
	n := 0
	run := func(l *Levels, ticks int) {
		t.Helper()
		for range ticks {
			n++
			for i := range 3 {
				plane.counts[7][i].Packets[0] += 3000
			}
			plane.counts[7][1].Packets[weights.Ages-1] += 15_000 // node 3, core 0
			tick(t, l, n)
		}
	}
	run(l, 200)
	if w := plane.weights[7]; w[0] != 0 || w[1] >= w[2] {
		t.Fatalf("weights %v while node 1 is drained and core 0 of node 3 has an elephant", w)
	}
	next := *cfg
	next.Nodes = slices.Clone(cfg.Nodes)
	next.Nodes[1].Weight = 1
	joined, err := NewLevels(plane, &next, l)
	if err != nil {
		t.Fatal(err)
	}
	if run(l, 1); plane.weights[7][0] != 0 {
		t.Error("node 1 joins before the new levels have a tick")
	}
	run(joined, 1)
	if w := plane.weights[7]; w[0] <= w[1] || w[2] <= w[1] {
		t.Errorf("weights %v after node 1 joined, as of a balancer that knows nothing", w)
	}
	next.Balance = topo.RoundRobin
	if other, err := NewLevels(plane, &next, joined); err != nil || other.decides == joined.decides {
		t.Errorf("another rule goes on with the old balancer (%v)", err)
	}
}
