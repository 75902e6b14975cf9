package control

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/dataplane/edge"
	"proffer/report"
	"proffer/topo"
	"proffer/weights"
)

// asked is levelled with nodes that report, by names, and costs that are not stated.
func asked(rule topo.Balance) (*counted, *topo.EdgeLB) {
	plane, cfg := levelled(rule)
	cfg.ReportKey = new(topo.Key)
	for i := range cfg.Nodes {
		cfg.Nodes[i].Name = []string{"big", "small"}[i]
		cfg.Nodes[i].Addr = netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
	}
	for i := range cfg.Services {
		cfg.Services[i].Cost = 0
	}
	return plane, cfg
}

// round is a tick, and the nodes' answers to the requests after it: nil of a node is silence.
func round(t *testing.T, l *Levels, n int, answer func(node int, m *report.NodeMessage) bool) (changes []Change) {
	t.Helper()
	tick(t, l, n)
	at, nonce := time.Duration(n)*LevelEvery, uint64(0)
	requests, changes := l.Ask(at, func() uint64 { nonce++; return uint64(100*n) + nonce })
	for i := range requests {
		m := requests[i]
		if m.Answer = true; answer(i, &m) {
			if c := l.Answer(at, i, &m); c != nil {
				changes = append(changes, *c)
			}
		}
	}
	return changes
}

func silent(int, *report.NodeMessage) bool { return false }

// costing answers with the cost of each service at each node, in ns.
func costing(costs map[int][2]float64) func(int, *report.NodeMessage) bool {
	return func(node int, m *report.NodeMessage) bool {
		if ns := costs[m.Service][node]; ns != 0 {
			c := weights.Fixed(ns)
			m.Cost = &c
		}
		return true
	}
}

func prices(l *Levels) (all []string) {
	for _, p := range l.Prices() {
		all = append(all, strings.Join([]string{p.Node, map[int]string{7: "7", 5: "5"}[p.Service], time.Duration(p.Nanoseconds).String(), string(p.Source)}, " "))
	}
	return all
}

// TestNodesReportCosts: a cost is assumed until a node reports it; a node that has not counts as the
// average of those that have; a stated cost wins; a reload keeps them all.
func TestNodesReportCosts(t *testing.T) {
	plane, cfg := asked(topo.ByModel)
	l := newLevels(t, plane, cfg)
	want := func(label string, all ...string) {
		t.Helper()
		if got := prices(l); !slices.Equal(got, all) {
			t.Errorf("%s: costs %q, want %q", label, got, all)
		}
	}
	round(t, l, 1, silent)
	want("without answers", "big 7 1µs assumed", "big 5 1µs assumed", "small 7 1µs assumed", "small 5 1µs assumed")
	some := costing(map[int][2]float64{7: {700, 0}, 5: {5000, 9000}})
	round(t, l, 2, func(node int, m *report.NodeMessage) bool {
		first, other := *m, weights.Fixed(3)
		first.Cost = &other
		l.Answer(0, node, &first)
		return some(node, m) // a second answer to the request
	})
	tick(t, l, 3)
	if all := strings.Join(prices(l), ", "); strings.Contains(all, "700ns") || strings.Contains(all, "5µs") || !strings.Contains(all, "3ns measured") {
		t.Errorf("a second answer to a request counts: %s", all)
	}
	l = newLevels(t, plane, cfg)
	round(t, l, 2, some)
	want("until the next tick", "big 7 1µs assumed", "big 5 1µs assumed", "small 7 1µs assumed", "small 5 1µs assumed")
	for n := 3; n < 6; n++ {
		round(t, l, n, some)
	}
	want("with answers", "big 7 700ns measured", "big 5 5µs measured", "small 7 700ns average", "small 5 9µs measured")
	plane.counts[5][0] = edge.Count{Packets: weights.Packets{3: 1000}} // of the small node
	tick(t, l, 6)
	if got := l.Levels()[2].Load; math.Abs(got-0.3) > 1e-9 {
		t.Errorf("load %v of 1000 packets of 9 µs in 30 ms", got)
	}
	next := *cfg
	next.Nodes = append(slices.Clone(cfg.Nodes), topo.EdgeNode{Name: "more", Server: 9, Cores: 1, Weight: 1, Addr: netip.MustParseAddr("192.0.2.9")})
	next.Services = slices.Clone(cfg.Services)
	next.Services[0].Cost = 2 * time.Microsecond
	again, err := NewLevels(plane, &next, l)
	if err != nil {
		t.Fatal(err)
	}
	l = again
	want("after a reload", "big 7 2µs stated", "big 5 5µs measured", "small 7 2µs stated", "small 5 9µs measured", "more 7 2µs stated", "more 5 7µs average")
}

// TestBadCostsAreRefused: a node that reports a cost of 0 counts as silent, with the reason.
func TestBadCostsAreRefused(t *testing.T) {
	plane, cfg := asked(topo.ByModel)
	l := newLevels(t, plane, cfg)
	var changes []Change
	for n := 1; n < 60 && len(changes) == 0; n++ {
		changes = round(t, l, n, func(node int, m *report.NodeMessage) bool {
			if node == 1 {
				m.Cost = new(weights.Curve)
			}
			return true
		})
	}
	if len(changes) != 1 || changes[0].Server != "small" || !changes[0].Lost || !strings.Contains(changes[0].Why, "costs 0 ns a packet") {
		t.Errorf("changes %+v", changes)
	}
	if got := prices(l)[2]; got != "small 7 1µs assumed" {
		t.Errorf("cost %q", got)
	}
}

// TestSilentNodesAreNoted: once, after a second, and once when they answer again; an answer to an
// earlier request, and another to the last, change nothing.
func TestSilentNodesAreNoted(t *testing.T) {
	plane, cfg := asked(topo.ByModel)
	l := newLevels(t, plane, cfg)
	var changes []Change
	for n := 1; n <= 100; n++ {
		got := round(t, l, n, func(node int, m *report.NodeMessage) bool { return node == 0 })
		if len(got) > 0 && n < 34 {
			t.Errorf("noted after %d requests", n)
		}
		changes = append(changes, got...)
	}
	late := report.NodeMessage{Server: 1, Service: 7, Nonce: 9901, Answer: true}
	if c := l.Answer(0, 1, &late); c != nil {
		t.Errorf("an old answer is taken: %+v", c)
	}
	changes = append(changes, round(t, l, 101, func(node int, m *report.NodeMessage) bool {
		again := *m
		if node == 1 {
			if c := l.Answer(101*LevelEvery, 1, &again); c != nil {
				changes = append(changes, *c)
			}
		}
		return true
	})...)
	if len(changes) != 2 || changes[0].Server != "small" || !changes[0].Lost || changes[0].Why != "no answer" || changes[1].Server != "small" || changes[1].Lost {
		t.Errorf("changes %+v", changes)
	}
}

// working answers with cores that work for so long of each tick; the node's clock counts in its own
// ticks.
func working(n int, per time.Duration) func(int, *report.NodeMessage) bool {
	return func(node int, m *report.NodeMessage) bool {
		m.At = time.Hour + time.Duration(n)*LevelEvery
		m.Busy = []time.Duration{time.Hour + time.Duration(n)*per, time.Hour}
		if node == 1 {
			m.Busy = m.Busy[:1]
		}
		return true
	}
}

// TestNodesReportLoads: a load is between the answers to two requests in a row. Without the second it
// is that before, until the node counts as silent; one that began again has none.
func TestNodesReportLoads(t *testing.T) {
	plane, cfg := asked(topo.ByMonitor)
	l := newLevels(t, plane, cfg)
	at := func(n int) []float64 { // as the tick sees it
		tick(t, l, n)
		var all []float64
		for _, c := range l.Levels() {
			all = append(all, math.Round(1000*c.Measured)/1000)
		}
		return all
	}
	nan := math.NaN()
	same := func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }
	want := func(label string, got []float64, all ...float64) {
		t.Helper()
		if !slices.EqualFunc(got, all, same) {
			t.Errorf("%s: %v, want %v", label, got, all)
		}
	}
	round(t, l, 1, working(1, 6*time.Millisecond))
	want("after one answer", at(2), nan, nan, nan)
	round(t, l, 3, working(2, 6*time.Millisecond))
	want("after two", at(4), .2, 0, .2)
	round(t, l, 5, silent)
	want("after a silence", at(6), .2, 0, .2)
	round(t, l, 7, working(9, 12*time.Millisecond)) // the answer before is missing
	want("after an answer", at(8), .2, 0, .2)
	round(t, l, 9, working(10, 12*time.Millisecond))
	want("after the next", at(10), .4, 0, .4)
	over := func(n int) func(int, *report.NodeMessage) bool { // 2^32 µs of work, as a report has them
		return func(node int, m *report.NodeMessage) bool {
			ends := []time.Duration{(1<<32 - 9000) * time.Microsecond, 0}[n] // 9 ms later
			m.At, m.Busy = 2*time.Hour+time.Duration(n)*LevelEvery, []time.Duration{ends, time.Duration(n) * 15 * time.Millisecond}[:2-node]
			return true
		}
	}
	round(t, l, 11, over(0))
	round(t, l, 13, over(1))
	want("beyond 32 bits", at(14), .3, .5, .3)
	for n := 15; n < 60; n++ {
		round(t, l, n, silent)
	}
	want("after a second", at(60), nan, nan, nan)
	round(t, l, 61, working(1, 0))
	round(t, l, 62, func(node int, m *report.NodeMessage) bool {
		m.At, m.Busy = time.Hour+2*LevelEvery, []time.Duration{time.Hour} // of a node with other cores
		return true
	})
	want("of other cores", at(63), nan, nan, 0)
	for n := 64; n < 66; n++ {
		round(t, l, n, func(node int, m *report.NodeMessage) bool { // hours of work in a nanosecond
			m.At, m.Busy = time.Hour+2*LevelEvery+time.Duration(n), []time.Duration{time.Duration(n) * time.Minute, 0}[:2-node]
			return true
		})
	}
	want("of more work than time", at(66), nan, nan, 0)
}

// TestMonitorLevels: the core with the higher measured load gets fewer of the new flows, whatever the
// counted packets predict; under model the costs follow the measured loads instead.
func TestMonitorLevels(t *testing.T) {
	for _, rule := range []topo.Balance{topo.ByMonitor, topo.ByModel} {
		plane, cfg := asked(rule)
		l := newLevels(t, plane, cfg)
		for n := 1; n < 300; n++ {
			plane.counts[7][2].Packets[0] += 3000 // of node 3, core 1, predicted at 10 %
			round(t, l, n, func(node int, m *report.NodeMessage) bool {
				m.At = time.Duration(n) * LevelEvery
				m.Busy = []time.Duration{0, time.Duration(n) * 6 * time.Millisecond}[:2-node]
				return true
			})
		}
		w := plane.weights[7]
		if rule == topo.ByMonitor && w[2] > w[1]/2 {
			t.Errorf("%s: weights %v with a measured load of .2 at the third", rule, w)
		}
		learned := 0.2
		if rule == topo.ByMonitor {
			learned = 0.1
		}
		if got := l.Levels()[1].Load; math.Abs(got-learned) > 0.005 {
			t.Errorf("%s: predicted load %v, want %v", rule, got, learned)
		}
		again, err := NewLevels(plane, cfg, l)
		if err != nil {
			t.Fatal(err)
		}
		if was, is := l.decides.Cost(1, 0), again.decides.Cost(1, 0); was != is {
			t.Errorf("%s: a reload forgets the cost %v for %v", rule, was, is)
		}
	}
}

// TestOldLoadsTeachNothing: the load of a tick belongs to the packets of that tick. When a node is
// silent, its last one moves no cost.
func TestOldLoadsTeachNothing(t *testing.T) {
	plane, cfg := asked(topo.ByModel)
	l := newLevels(t, plane, cfg)
	for n := 1; n < 30; n++ {
		answer := silent
		if n < 4 {
			answer = func(node int, m *report.NodeMessage) bool {
				m.At, m.Busy = time.Duration(n)*LevelEvery, make([]time.Duration, 2-node)
				return true
			}
		} else {
			plane.counts[7][2].Packets[0] += 3000
		}
		round(t, l, n, answer)
	}
	if got := l.Levels()[1].Load; math.Abs(got-0.1) > 1e-9 {
		t.Errorf("load %v, want .1 as before the silence", got)
	}
}
