package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proffer/api"
	"proffer/cmd/internal/clitest"
)

// TestStatusHelpNamesEveryField: they are the interface of --json.
func TestStatusHelpNamesEveryField(t *testing.T) {
	clitest.Program(newRoot).WantFields(t, api.Status{}, "status")
}

// TestStatusOfNone: one line for both default sockets, with the remedy.
func TestStatusOfNone(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "lb.sock"), filepath.Join(dir, "agent.sock")}
	_, err := ask(t.Context(), "", paths)
	want := "no daemon answers at " + paths[0] + " or " + paths[1] + ": is a daemon running? Give the `control` path of its configuration with --control"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// TestStatusOfStale: of a daemon that was killed its socket is named, and not the
// one that never was.
func TestStatusOfStale(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "lb.sock"), filepath.Join(dir, "agent.sock")}
	l, err := net.Listen("unix", paths[1])
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := os.Lstat(paths[1]); err != nil {
		t.Fatal(err)
	}
	_, err = ask(t.Context(), "", paths)
	if err == nil || !strings.HasPrefix(err.Error(), "no daemon answers at "+paths[1]+": ") || strings.Contains(err.Error(), paths[0]) {
		t.Errorf("got %v", err)
	}
}

// TestStatusOfLearning: a line a server, with its flows, the mean, the filter, the weight and why.
func TestStatusOfLearning(t *testing.T) {
	mean, part := 0.25, 0.975
	var out strings.Builder
	err := printStatus(&out, api.Status{Role: "lb", Services: []api.ServiceStatus{{
		Name: "web", VIP: "[2001:db8::1]:80", Mode: "learned, 2 servers",
		Learning: &api.LearningStatus{
			Counting: "all", Conversion: &part, Silent: 12, Gain: 0.02, Noise: 0.1,
			Servers: []api.LearnedStatus{
				{Name: "s1", Established: 4, Embryonic: 1, Samples: 128, Mean: &mean, Filter: 1.25, Variance: 0.01, Weight: 0.4, Why: "flows last 1.25 of the average"},
				{Name: "s2", Filter: 0.5, Variance: 100, Weight: 0.6, Why: "no samples: average assumed"},
			},
		},
	}}}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"counting all, 98 % of new flows come to life, silent after 12 s, gain 0.02, noise 0.1\n",
		"weight 0.4000: flows last 1.25 of the average\n", "established 4, embryonic 1 ", "mean 0.250 s of 128, filter 1.250 ± 0.100",
		"mean none of 0, filter 0.500 ± 10.000 ", "weight 0.6000: no samples: average assumed\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestStatusOfServers: a line for each server of a service with its weight and connections, and none of
// those counts that are its host's.
func TestStatusOfServers(t *testing.T) {
	none, some := uint32(0), uint32(17)
	host := api.HealthStatus{Name: "s1", State: "answers", Offered: 5, Answered: 4}
	var out strings.Builder
	err := printStatus(&out, api.Status{Role: "lb", Servers: []api.HealthStatus{host}, Services: []api.ServiceStatus{
		{Name: "web", Mode: "hunt, choices 2, 3 servers", Servers: []api.ServerStatus{
			{Name: "s1", State: "answers", Weight: 1, Connections: &some},
			{Name: "s2", State: "down", Weight: 3, Connections: &none},
			{Name: "s3", State: "unknown", Draining: true, Connections: &none},
		}},
		{Name: "plain", Mode: "ecmp, 1 server", Servers: []api.ServerStatus{{Name: "s1", State: "answers", Weight: 2}}},
	}}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  s1     weight 1, connections 17\n", "  s2     weight 3, connections 0, down\n", "  s3     weight 0, draining, connections 0\n", "  s1     weight 2\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Count(out.String(), "offered") != 1 || strings.Count(out.String(), "answered 4") != 1 {
		t.Errorf("the counts of a host do not stand there once:\n%s", out.String())
	}
}

// TestStatusOfNoReload: that a reload was refused is the first line, and stands there once.
func TestStatusOfNoReload(t *testing.T) {
	for _, role := range []string{"lb", "edge"} {
		s := api.Status{Role: role, NotReloaded: "configuration not reloaded: why", Problems: []string{"configuration not reloaded: why", "another"}}
		if role == "edge" {
			s.Edge = &api.EdgeStatus{}
		}
		var out strings.Builder
		if err := printStatus(&out, s, false); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); !strings.HasPrefix(text, "problem: configuration not reloaded: why\n"+role+" ") || strings.Count(text, "problem:") != 2 {
			t.Errorf("got\n%s", text)
		}
	}
}

// TestStatusOfHealth: a line for each server of the LB; of those that are down or doubted it has their silence.
func TestStatusOfHealth(t *testing.T) {
	var out strings.Builder
	err := printStatus(&out, api.Status{Role: "lb", Servers: []api.HealthStatus{
		{Name: "well", State: "answers", Since: 60, Silent: 0.5, Offered: 5, Answered: 5},
		{Name: "doubted", State: "answers", Since: 60, Doubt: 9.2, Silent: 0.5, Offered: 7, Answered: 5},
		{Name: "dead", State: "down", Since: 3.5, Silent: 4.25, Probes: 2, Pause: 4, Offered: 9, Repeated: 3, Answered: 1, Unreachable: 6},
	}}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"server  dead     down since 3.5 s, 2 probes, one in 4 s, no answer for 4.2 s  offered 9, repeated 3, answered 1, unreachable 6\n",
		"server  doubted  answers since 60.0 s, no answer for 0.5 s                    offered 7, repeated 0, answered 5, unreachable 0\n",
		"server  well     answers since 60.0 s                                         offered 5, repeated 0, answered 5, unreachable 0\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestStatusOfVirtualCore: a node's line has the work of a virtual core.
func TestStatusOfVirtualCore(t *testing.T) {
	var out strings.Builder
	err := printStatus(&out, api.Status{Role: "nf", Edge: &api.EdgeStatus{Cores: []api.CoreStatus{
		{Node: "n1", Packets: 9, Virtual: &api.VirtualStatus{Served: 8, Dropped: 1, Stayed: 80_000}}, {Node: "n1", Core: 1},
	}}}, false)
	if err != nil {
		t.Fatal(err)
	}
	if want := "9 packets  virtual: served 8, dropped 1, 10µs a packet on average\n"; !strings.Contains(out.String(), want) || strings.Count(out.String(), "virtual") != 1 {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}

// TestStatusOfPatterns: a line a pattern of the IDS.
func TestStatusOfPatterns(t *testing.T) {
	var out strings.Builder
	if err := printStatus(&out, api.Status{Role: "nf", Edge: &api.EdgeStatus{Patterns: []api.PatternStatus{{Service: 3, Pattern: "attack", Packets: 7}}}}, false); err != nil {
		t.Fatal(err)
	}
	if want := "pattern  attack  service 3  7 packets\n"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}

// TestStatusOfCosts: a line a core with both of its loads, and a line a cost with its source.
func TestStatusOfCosts(t *testing.T) {
	load, measured, weight, flows := 0.25, 0.3, 1.5, uint64(7)
	var out strings.Builder
	err := printStatus(&out, api.Status{Role: "edge", Edge: &api.EdgeStatus{Balancer: "model", RefusedReports: 3,
		Cores: []api.CoreStatus{
			{Node: "n1", Core: 1, Load: &load, Measured: &measured, Weight: &weight, Flows: &flows},
			{Node: "n2", Load: &load, Weight: &weight, Flows: &flows},
		},
		Costs: []api.CostStatus{{Node: "n1", Service: 5, Nanoseconds: 2500, From: "measured"}},
	}}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"7 flows begun  load 25.0 %  measured 30.0 %  weight 1.500\n", "load 25.0 %  not measured     weight 1.500\n",
		"cost  n1    service 5  2.5 µs a packet  measured\n", "reports of nodes without a valid tag or malformed: 3\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestStatusOfTalkers: a line each.
func TestStatusOfTalkers(t *testing.T) {
	var out strings.Builder
	talker := api.TalkerStatus{Protocol: "tcp", Client: "10.1.0.7:1000", World: "198.51.100.9:443", Node: "n1", Core: 1, Service: 2, PacketsPerSecond: 81234.4, BitsPerSecond: 912_345_678, Share: 0.466}
	if err := printStatus(&out, api.Status{Role: "edge", Edge: &api.EdgeStatus{Talkers: []api.TalkerStatus{talker}}}, false); err != nil {
		t.Fatal(err)
	}
	if want := "talker tcp 10.1.0.7:1000 with 198.51.100.9:443 at n1/1, service 2: 81234 packets/s, 912 Mbit/s, 47 % of all\n"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}
