package control

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/report"
	"proffer/topo"
)

// TestNodesAreNotAsTheFile: cores and chains that a node does not have get no new flows, under every
// rule, and the flows that a missing core has go elsewhere; each is a problem until the node has it. A
// reload keeps the known differences, and so does silence.
func TestNodesAreNotAsTheFile(t *testing.T) {
	for _, rule := range topo.Balances() {
		plane, cfg := asked(rule)
		l, n := newLevels(t, plane, cfg), 0
		rounds := func(cores int, lacks int) {
			for range 4 { // each service is asked for twice
				n++
				round(t, l, n, func(node int, m *report.NodeMessage) bool {
					m.Cores, m.Busy = []int{cores, 1}[node], make([]time.Duration, 2-node)
					m.NoChain = node == 0 && m.Service == lacks
					return true
				})
			}
			n++
			tick(t, l, n)
		}
		want := func(label string, cores int, takes7, takes5 [3]bool, problems ...string) {
			t.Helper()
			for service, takes := range map[int][3]bool{7: takes7, 5: takes5} {
				for i, w := range plane.weights[service] { // small, and both cores of big
					if w > 0 != takes[i] {
						t.Errorf("%v, %s: service %d has weights %v", rule, label, service, plane.weights[service])
					}
				}
			}
			if got := l.Problems(); !slices.EqualFunc(got, problems, strings.HasPrefix) {
				t.Errorf("%v, %s: problems %q", rule, label, got)
			}
			if levels := l.Levels(); levels[0].Absent || levels[1].Absent != (cores < 2) {
				t.Errorf("%v, %s: cores %+v", rule, label, levels)
			}
			if set := map[int]int{3: cores, 1: 1}; !maps.Equal(plane.cores, set) {
				t.Errorf("%v, %s: the plane has cores %v, want %v", rule, label, plane.cores, set)
			}
		}
		all, fewer := [3]bool{true, true, true}, [3]bool{true, true, false}
		const ofCores, ofChain = "node big reports cores: 1, and this file has cores: 2", "node big has no chain of service 5"
		tick(t, l, 0)
		want("before a report", 2, all, all)
		rounds(1, 5)
		want("one core, and no chain", 1, fewer, [3]bool{true, false, false}, ofCores, ofChain)
		l = again(t, plane, cfg, l)
		tick(t, l, n+1)
		n++
		want("after a reload", 1, fewer, [3]bool{true, false, false}, ofCores, ofChain)
		for range 40 {
			n++
			round(t, l, n, silent)
		}
		want("silent", 1, fewer, [3]bool{true, false, false}, ofCores, ofChain)
		rounds(3, 0)
		want("more cores", 2, all, all, "node big reports cores: 3, and this file has cores: 2")
		rounds(2, 0)
		want("as the file", 2, all, all)
	}
}

// again is a reload of the same file.
func again(t *testing.T, plane *counted, cfg *topo.EdgeLB, before *Levels) *Levels {
	t.Helper()
	l, err := NewLevels(plane, cfg, before)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestMonitorWithoutLoads: a node that measures no loads is a problem under monitor alone.
func TestMonitorWithoutLoads(t *testing.T) {
	for _, rule := range topo.Balances() {
		plane, cfg := asked(rule)
		l := newLevels(t, plane, cfg)
		if all := l.Problems(); len(all) != 0 {
			t.Errorf("%v: problems %q before a report", rule, all)
		}
		round(t, l, 1, func(node int, m *report.NodeMessage) bool {
			if m.Cores = 2 - node; node == 1 {
				m.Busy = make([]time.Duration, 1)
			}
			return true
		})
		want := []string{"node big measures no loads of its cores: balancer monitor levels them by predictions"}
		if rule != topo.ByMonitor {
			want = nil
		}
		if all := l.Problems(); !slices.Equal(all, want) {
			t.Errorf("%v: problems %q, want %q", rule, all, want)
		}
	}
}
