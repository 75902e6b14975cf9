package experiment

import (
	"strings"
	"testing"
	"time"

	"proffer/lab/traffic"
)

// holds checks a verdict: nil, or an error that names what.
func holds(t *testing.T, name string, err error, what string) {
	t.Helper()
	switch {
	case what == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case what != "" && (err == nil || !strings.Contains(err.Error(), what)):
		t.Errorf("%s: got %v, want %q", name, err, what)
	}
}

func TestResiliencyHolds(t *testing.T) {
	for _, c := range []struct {
		method Method
		extra  int
		what   string
	}{
		{WithHistory, 0, ""},
		{WithHistory, 1, "hunt lost 1 of 10 flows"},
		{WithoutHistory, 5, ""},
		{ByHash, 5, ""},
	} {
		r := &ResiliencyReport{results: []*resilience{{method: c.method, experiment: Resiliency{Flows: 10}, changes: []Change{{Extra: c.extra}}}}}
		holds(t, string(c.method), r.Holds(), c.what)
	}
}

func TestLBKillHolds(t *testing.T) {
	rows := func(outcome traffic.Outcome, took time.Duration) traffic.Result {
		return traffic.Result{Rows: []traffic.Row{{Outcome: traffic.OK, Done: time.Millisecond}, {Outcome: outcome, Done: took, Cause: "why"}}}
	}
	for _, c := range []struct {
		name   string
		report LBKillReport
		what   string
	}{
		{"good", LBKillReport{requests: rows(traffic.OK, time.Second)}, ""},
		{"reset", LBKillReport{requests: rows(traffic.Reset, time.Second)}, "1 of 2 requests failed"},
		{"slow", LBKillReport{requests: rows(traffic.OK, 1501*time.Millisecond)}, "waited 1.501s"},
		{"idle", LBKillReport{requests: rows(traffic.OK, 0), idle: []traffic.Answer{{Outcome: traffic.Silent}}}, "1 of 1 idle flows"},
		{"idle LB", LBKillReport{experiment: LBKill{LBs: 2}, carrying: 1, requests: rows(traffic.OK, 0)}, "1 of 2 LBs"},
		{"bulk", LBKillReport{requests: rows(traffic.OK, 0), bulk: []traffic.Transfer{{Outcome: traffic.Reset, Cause: "why"}}}, "1 of 1 bulk flows"},
	} {
		holds(t, c.name, c.report.Holds(), c.what)
	}
}

func TestLossHolds(t *testing.T) {
	result := func(way string, outcome traffic.Outcome, times int) *lossy {
		return &lossy{loss: 0.1, way: way, rows: []traffic.Row{{ID: 0, Outcome: outcome}}, served: map[string]int{"0": times}}
	}
	for _, c := range []struct {
		name    string
		results []*lossy
		what    string
	}{
		{"good", []*lossy{result(lossHunt, traffic.OK, 1), result(lossRoute, traffic.OK, 1)}, ""},
		{"timeout", []*lossy{result(lossHunt, traffic.TimedOut, 0), result(lossRoute, traffic.OK, 1)}, ""},
		{"twice", []*lossy{result(lossHunt, traffic.OK, 2), result(lossRoute, traffic.OK, 1)}, "1 requests were served twice"},
		{"by none", []*lossy{result(lossHunt, traffic.OK, 0), result(lossRoute, traffic.OK, 1)}, "in no server's books"},
		{"reset", []*lossy{result(lossHunt, traffic.Reset, 1), result(lossRoute, traffic.OK, 1)}, "hunt, 10 % lost: 1 resets"},
		{"refused", []*lossy{result(lossSingle, traffic.Refused, 0), result(lossRoute, traffic.OK, 1)}, "single, 10 % lost: 1 resets"},
		{"as without us", []*lossy{result(lossHunt, traffic.Reset, 1), result(lossRoute, traffic.Reset, 1)}, ""},
	} {
		holds(t, c.name, (&LossReport{results: c.results}).Holds(), c.what)
	}
}

func TestFloodHolds(t *testing.T) {
	holds(t, "good", (&FloodReport{rows: []FloodRow{{Established: 5, SilentDuring: 5, Tried: 5}}}).Holds(), "")
	holds(t, "lost", (&FloodReport{rows: []FloodRow{{Established: 5}, {Established: 5, Lost: 2}}}).Holds(), "cost 2 of 5")
}

func TestForgeHolds(t *testing.T) {
	good := ForgeReport{Signals: 10, Seen: 6}
	holds(t, "good", good.Holds(), "")
	for what, spoil := range map[string]func(*ForgeReport){
		"1 nodes with flow tables":    func(r *ForgeReport) { r.ChangedMaps = 1 },
		"2 TCP segments":              func(r *ForgeReport) { r.Delivered = 2 },
		"3 connections":               func(r *ForgeReport) { r.Accepted = 3 },
		"-4 flow table entries":       func(r *ForgeReport) { r.Entries = -4 },
		"5 live flows":                func(r *ForgeReport) { r.Lost = 5 },
		"-1 requests in progress":     func(r *ForgeReport) { r.Asking = -1 },
		"only 4 of 10 forged signals": func(r *ForgeReport) { r.Seen = 4 },
	} {
		bad := good
		spoil(&bad)
		holds(t, what, bad.Holds(), what)
	}
}

func TestLatencyHolds(t *testing.T) {
	r := &LatencyReport{experiment: Latency{Connections: 3}, first: 3, second: 3}
	holds(t, "good", r.Holds(), "")
	r.second = 2
	holds(t, "otherwise", r.Holds(), "2 by their second")
}
