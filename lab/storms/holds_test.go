package storms

import (
	"net/netip"
	"testing"
	"time"

	"proffer/lab/farmrun/farmtest"
	"proffer/lab/traffic"
)

func TestResiliencyHolds(t *testing.T) {
	for _, c := range []struct {
		method Method
		extra  int
		what   string
	}{
		{WithHistory, 0, ""},
		{WithHistory, 1, "hunt lost 1 of 10 flows"},
		{WithoutHistory, 5, ""},
		{WithoutHistory, 0, "hunt-no-history lost no flow of 10 by 1 changes"},
		{ByHash, 5, ""},
		{ByHash, 0, "stateless lost no flow of 10 by 1 changes"},
	} {
		r := &ResiliencyReport{results: []*resilience{{method: c.method, experiment: Resiliency{Flows: 10}, changes: []Change{{Extra: c.extra}}}}}
		farmtest.Holds(t, string(c.method), r.Holds(), c.what)
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
		{"known death", LBKillReport{experiment: LBKill{Detect: time.Second}, requests: rows(traffic.OK, 0)}, "no frame met a dead host"},
		{"bulk", LBKillReport{requests: rows(traffic.OK, 0), bulk: []traffic.Transfer{{Outcome: traffic.Reset, Cause: "why"}}}, "1 of 1 bulk flows"},
	} {
		farmtest.Holds(t, c.name, c.report.Holds(), c.what)
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
		{"accepted twice", []*lossy{{way: lossHunt, rows: []traffic.Row{{Outcome: traffic.OK}}, served: map[string]int{"0": 1}, accepted: map[netip.AddrPort]int{{}: 2}}}, "1 connections were accepted twice"},
		{"two request sockets", []*lossy{{way: lossHunt, rows: []traffic.Row{{Outcome: traffic.OK, SYNRetransmits: 1}}, served: map[string]int{"0": 1}, answered: map[netip.AddrPort]int{{}: 2}}}, "1 connections had request sockets on two servers"},
		{"two request sockets, three SYNs", []*lossy{{way: lossHunt, rows: []traffic.Row{{Outcome: traffic.OK, SYNRetransmits: 2}}, served: map[string]int{"0": 1}, answered: map[netip.AddrPort]int{{}: 2}}}, ""},
		{"as without us", []*lossy{result(lossHunt, traffic.Reset, 1), result(lossRoute, traffic.Reset, 1)}, ""},
	} {
		farmtest.Holds(t, c.name, (&LossReport{results: c.results}).Holds(), c.what)
	}
}

func TestFloodHolds(t *testing.T) {
	good := FloodRow{SentPPS: 1000, Offered: 980, Established: 5, SilentDuring: 5, Tried: 100, OK: 99, P90: 503, TriedSpin: 50, OKSpin: 50, P90Spin: 3}
	for _, c := range []struct {
		name  string
		spoil func(*FloodRow)
		what  string
		kept  bool // but for times
	}{
		{"good", func(*FloodRow) {}, "", true},
		{"lost", func(r *FloodRow) { r.Lost = 2 }, "cost 2 of 5", false},
		{"recovered", func(r *FloodRow) { r.Recovered = 3 }, "3 of their packets met no entry, want 0", false},
		{"no room", func(r *FloodRow) { r.TableFull = 20 }, "no room in the table for 20 of 980 new flows, want at most 10", false},
		{"few came through", func(r *FloodRow) { r.OK = 98 }, "let 98 of 100 new connections through, want 99 %", false},
		{"few came through a network with losses", func(r *FloodRow) { r.Offered, r.OK = 979, 94 }, "let 94 of 100 new connections through, want 95 %", false},
		{"as few as with CPU burnt", func(r *FloodRow) { r.OK, r.OKSpin = 50, 25 }, "", true},
		{"slow", func(r *FloodRow) { r.P90 = 504 }, "took up to 504 ms, want at most 503", true},
		{"slow in a network with losses", func(r *FloodRow) { r.Offered, r.OK, r.P90 = 979, 95, 504 }, "", true},
	} {
		bad := good
		c.spoil(&bad)
		r := &FloodReport{experiment: Flood{For: time.Second}, rows: []FloodRow{good, bad}}
		farmtest.Holds(t, c.name, r.Holds(), c.what)
		if kept := r.Kept() == nil; kept != c.kept {
			t.Errorf("%s: kept is %v", c.name, kept)
		}
	}
}

func TestForgeHolds(t *testing.T) {
	good := ForgeReport{Signals: 10, Seen: 6}
	farmtest.Holds(t, "good", good.Holds(), "")
	for what, spoil := range map[string]func(*ForgeReport){
		"1 nodes with flow tables":    func(r *ForgeReport) { r.ChangedMaps = 1 },
		"2 TCP segments":              func(r *ForgeReport) { r.Delivered = 2 },
		"3 connections":               func(r *ForgeReport) { r.Accepted = 3 },
		"-4 flow table entries":       func(r *ForgeReport) { r.Entries = -4 },
		"5 live flows":                func(r *ForgeReport) { r.Lost = 5 },
		"1 requests in progress":      func(r *ForgeReport) { r.Asking = 1 },
		"2 counts of requests":        func(r *ForgeReport) { r.Recounted = 2 },
		"only 4 of 10 forged signals": func(r *ForgeReport) { r.Seen = 4 },
	} {
		bad := good
		spoil(&bad)
		farmtest.Holds(t, what, bad.Holds(), what)
	}
}

func TestStormHolds(t *testing.T) {
	at := time.Now()
	row := func(outcome traffic.Outcome, connected, done time.Duration) traffic.Result {
		return traffic.Result{Rows: []traffic.Row{{Outcome: outcome, Connected: connected, Done: done, Cause: "why"}}}
	}
	ended := []outage{{from: at.Add(time.Second), closed: at.Add(1100 * time.Millisecond), to: at.Add(1200 * time.Millisecond)}}
	good := Abuse{Name: "a", Times: 1, Counter: "b", Counted: 1}
	for _, c := range []struct {
		name   string
		report StormReport
		what   string
	}{
		{"good", StormReport{web: row(traffic.OK, 1, time.Second), abuses: []Abuse{good}}, ""},
		{"reset", StormReport{web: row(traffic.Reset, 1, time.Second)}, "1 of 1 requests with a healthy server failed"},
		{"slow", StormReport{web: row(traffic.OK, 1, 1501*time.Millisecond)}, "waited 1.501s"},
		{"slow in the container", StormReport{boxed: row(traffic.OK, 1, 1501*time.Millisecond)}, "waited 1.501s"},
		{"with its container", StormReport{boxed: row(traffic.Reset, time.Second, 1050*time.Millisecond), restarts: ended, began: at}, ""},
		{"connected after its end", StormReport{boxed: row(traffic.Reset, 1150*time.Millisecond, 1160*time.Millisecond), restarts: ended, began: at}, "1 of 1"},
		{"refused after its end", StormReport{boxed: row(traffic.Refused, 0, 1160*time.Millisecond), restarts: ended, began: at}, "1 of 1"},
		{"web", StormReport{web: row(traffic.Reset, time.Second, 1050*time.Millisecond), restarts: ended, began: at}, "1 of 1"},
		{"flow", StormReport{flows: []traffic.Answer{{Outcome: traffic.Silent}}}, "1 of 1 long flows"},
		{"never", StormReport{abuses: []Abuse{{Name: "a", Counted: 1}}}, "a: it was never done"},
		{"not counted", StormReport{abuses: []Abuse{{Name: "a", Times: 1, Counter: "b"}}}, "b is 0"},
	} {
		c.report.experiment.Servers = 3
		farmtest.Holds(t, c.name, c.report.Holds(), c.what)
	}
}
