package api

import (
	"bytes"
	"strings"
	"testing"
)

// TestCoreMetrics: an LB's cores have all metrics, a node's those that it knows.
func TestCoreMetrics(t *testing.T) {
	load, measured, weight, flows := 0.25, 0.3, 1.5, uint64(7)
	s := &Status{Edge: &EdgeStatus{Cores: []CoreStatus{{Node: "n1", Core: 1, State: "down", Load: &load, Measured: &measured, Weight: &weight, Packets: 9, Flows: &flows}, {Node: "n2", Packets: 3}}}}
	const want = `proffer_core_load{node="n1",core="1"} 0.25
proffer_core_measured_load{node="n1",core="1"} 0.3
proffer_core_weight{node="n1",core="1"} 1.5
proffer_core_down{node="n1",core="1"} 1
proffer_core_packets_total{node="n1",core="1"} 9
proffer_core_packets_total{node="n2",core="0"} 3
proffer_core_flows_total{node="n1",core="1"} 7
`
	wantMetrics(t, s, want)
}

// TestEdgeMetrics: an LB counts its wishes and refused reports, and the runs of its command if it has one.
func TestEdgeMetrics(t *testing.T) {
	s := &Status{Edge: &EdgeStatus{Balancer: "model", Wishes: 4, RefusedReports: 5}}
	wantMetrics(t, s, "proffer_replica_wanted_total 4\nproffer_refused_reports_total 5\n")
	s.Edge.Replica = &ReplicaStatus{Starts: 3, Failures: 2}
	wantMetrics(t, s, `proffer_replica_wanted_total 4
proffer_replica_starts_total 3
proffer_replica_failures_total 2
proffer_refused_reports_total 5
`)
}

// TestPatternMetrics: a node's patterns have a metric each.
func TestPatternMetrics(t *testing.T) {
	s := &Status{Edge: &EdgeStatus{Patterns: []PatternStatus{{Service: 3, Pattern: `a\x00b`, Packets: 7}, {Service: 3, Pattern: "attack"}}}}
	wantMetrics(t, s, `proffer_pattern_packets_total{service="3",pattern="a\\x00b"} 7
proffer_pattern_packets_total{service="3",pattern="attack"} 0
`)
}

func wantMetrics(t *testing.T, s *Status, want string) {
	t.Helper()
	var text bytes.Buffer
	if err := writeMetrics(&text, s); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	if got := strings.Join(lines, ""); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
