package config

import (
	"net/netip"
	"os"
	"reflect"
	"testing"
	"time"

	"proffer/topo"
)

const cpus = 6 // no default of the files, so that a default is seen to come from here

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func vipAt(port uint16) topo.VIP {
	return topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::1"), Port: port}
}

func host(name, locator string) topo.Server {
	return topo.Server{Name: name, Locator: netip.MustParsePrefix(locator)}
}

func TestParseLB(t *testing.T) {
	s1 := host("s1", "5f00:0:2:1::/64")
	node := topo.Node{Name: "lb1", Locator: netip.MustParsePrefix("5f00:0:1:1::/64"), Interface: "eth0", Control: "/run/proffer/lb1.sock"}
	short := node
	short.Name, short.Control = "lb", "/run/proffer/lb.sock"
	for file, want := range map[string]*topo.LB{
		"lb.yaml": {
			Node:         node,
			CandidateKey: topo.Key{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
			Flows:        topo.FlowTable{Entries: 1024, Idle: 90 * time.Second, Linger: 1500 * time.Millisecond},
			Services: []topo.Service{
				{Name: "web", VIP: vipAt(80), Dispatch: topo.Hunt, Choices: 3, Servers: []topo.Server{
					s1, host("s2", "5f00:0:2:2::/64"), host("s10", "5f00:0:2:10::/64"),
				}},
				{Name: "[2001:db8:f::1]:443", VIP: vipAt(443), Dispatch: topo.Single, Servers: []topo.Server{s1}},
			},
		},
		"lb-short.yaml": {
			Node:         short,
			CandidateKey: topo.Key{15: 1},
			Flows:        topo.FlowTable{Entries: 262144, Idle: 5 * time.Minute, Linger: 10 * time.Second},
			Services: []topo.Service{
				{Name: "[2001:db8:f::1]:80", VIP: vipAt(80), Dispatch: topo.Hunt, Choices: 2, Servers: []topo.Server{s1}},
			},
		},
	} {
		got, err := ParseLB(file, read(t, file))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", file, got, want)
		}
	}
}

func TestParseAgent(t *testing.T) {
	node := topo.Node{Name: "s1", Locator: netip.MustParsePrefix("5f00:0:2:1::/64"), Interface: "eth0", Control: "/run/proffer/s1.sock"}
	short := node
	short.Control = "/run/proffer/agent.sock"
	api := topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::2"), Port: 8080}
	for file, want := range map[string]*topo.Agent{
		"agent.yaml": {
			Node:  node,
			Flows: topo.FlowTable{Entries: 64, Idle: time.Minute, Linger: time.Second},
			Services: []topo.Offering{
				{Name: "web", VIP: vipAt(80), Acceptance: topo.Static, Threshold: 4, Workers: 16, Cores: 2, Signal: topo.Sockets, OnFull: topo.Drop},
				{Name: "api", VIP: api, Acceptance: topo.Dynamic, Window: 20, Epsilon: 0.05, Workers: 32, Cores: cpus, Signal: topo.SharedMemory, Page: "/run/proffer/web.load"},
			},
		},
		"agent-short.yaml": {
			Node:  short,
			Flows: topo.FlowTable{Entries: 65536, Idle: 5 * time.Minute, Linger: 10 * time.Second},
			Services: []topo.Offering{
				{Name: "[2001:db8:f::1]:80", VIP: vipAt(80), Acceptance: topo.Always, Workers: 32, Cores: cpus},
				{Name: "[2001:db8:f::1]:81", VIP: vipAt(81), Acceptance: topo.Dynamic, Threshold: 1, Window: 50, Epsilon: 0.1, Workers: 32, Cores: cpus},
			},
		},
	} {
		got, err := ParseAgent(file, read(t, file), cpus)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", file, got, want)
		}
	}
}

func TestMarshalRoundTrip(t *testing.T) {
	for _, file := range []string{"lb.yaml", "lb-short.yaml"} {
		lb, err := ParseLB(file, read(t, file))
		if err != nil {
			t.Fatal(err)
		}
		sameLB(t, lb)
	}
	for _, file := range []string{"agent.yaml", "agent-short.yaml"} {
		agent, err := ParseAgent(file, read(t, file), cpus)
		if err != nil {
			t.Fatal(err)
		}
		sameAgent(t, agent)
	}
}

func sameLB(t *testing.T, want *topo.LB) {
	t.Helper()
	written := MarshalLB(want)
	if got, err := ParseLB("written", written); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n got %+v\nwant %+v\nfrom\n%s", err, got, want, written)
	}
}

func sameAgent(t *testing.T, want *topo.Agent) {
	t.Helper()
	written := MarshalAgent(want)
	if got, err := ParseAgent("written", written, cpus+1); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n got %+v\nwant %+v\nfrom\n%s", err, got, want, written)
	}
}

func TestCoresAreAtLeastOne(t *testing.T) {
	agent, err := ParseAgent("agent.yaml", read(t, "agent-short.yaml"), 0)
	if err != nil || agent.Services[0].Cores != 1 {
		t.Fatalf("%v, %+v", err, agent)
	}
}
