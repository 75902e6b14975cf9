package config

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"proffer/schema/schematest"
	"proffer/topo"
)

const cpus = 6 // no default of the files, so that a default is seen to come from here

func vipAt(port uint16) topo.VIP {
	return topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::1"), Port: port}
}

func host(name, locator string) topo.Server { return weighted(name, locator, 1) }

func weighted(name, locator string, weight int) topo.Server {
	return topo.Server{Name: name, Locator: netip.MustParsePrefix(locator), Weight: weight}
}

func addrs(texts ...string) (list []netip.Addr) {
	for _, s := range texts {
		list = append(list, netip.MustParseAddr(s))
	}
	return list
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, s := range texts {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

func udp(addr string, port uint16) topo.VIP {
	return topo.VIP{Addr: netip.MustParseAddr(addr), Port: port, Protocol: topo.UDP}
}

func TestParseLB(t *testing.T) {
	s1 := host("s1", "5f00:0:2:1::/64")
	node := topo.Node{
		Name: "lb1", Locator: netip.MustParsePrefix("5f00:0:1:1::/64"), Interface: "eth0",
		Control: "/run/proffer/lb1.sock", Pin: "/sys/fs/bpf/farm/one",
		Domain: prefixes("5f00:0:1::/48", "5f00:0:2::/47"), KeyFile: "/etc/proffer/signal.keys",
	}
	for file, want := range map[string]*topo.LB{
		"lb.yaml": {
			Node:         node,
			State:        "/var/lib/farm/one.json",
			CandidateKey: topo.Key{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
			Flows:        topo.FlowTable{Entries: 1024, Idle: 90 * time.Second, Linger: 1500 * time.Millisecond},
			Services: []topo.Service{
				{Name: "web", VIP: vipAt(80), Dispatch: topo.Hunt, Choices: 3, Buckets: 65537, Servers: []topo.Server{
					s1, host("s2", "5f00:0:2:2::/64"), host("s10", "5f00:0:2:10::/64"),
				}},
				{Name: "[2001:db8:f::1]:443", VIP: vipAt(443), Dispatch: topo.Single, Recovery: topo.AgentsRecovery, Buckets: 65537, Servers: []topo.Server{s1}},
				{
					Name: "papers", VIP: topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::2"), Port: 80},
					Dispatch: topo.Hunt, Select: topo.Random, Choices: 1, Buckets: 8191, Wire: topo.Insert,
					Via:     addrs("5f00:0:9:1::1", "5f00:0:9:2::1"),
					Servers: []topo.Server{weighted("s1", "5f00:0:2:1::/64", 65535)}, Version: 7,
					History: []topo.Version{
						{Version: 6, Servers: []topo.Server{weighted("old", "5f00:0:2:1::/64", 3), host("s3", "5f00:0:2:3::/64")}},
						{Version: 2, Servers: []topo.Server{host("s9", "5f00:0:2:9::/64")}},
					},
				},
				{
					Name: "udp:192.0.2.53:53", VIP: udp("192.0.2.53", 53), Dispatch: topo.Stateless, Buckets: 65537,
					Fragments: topo.HashFragments, Servers: []topo.Server{weighted("d1", "5f00:0:2:53::/64", 0)},
				},
				{
					Name: "bare", VIP: topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::3"), Port: 80}, Dispatch: topo.Single, Buckets: 65537,
					Servers: []topo.Server{
						{Name: "k3", Delivery: topo.ByVXLAN, Address: netip.MustParseAddr("10.0.0.4"), VNI: 100, MAC: topo.MAC{2, 0, 0, 0, 0, 7}, Weight: 1},
						{Name: "k2", Delivery: topo.ByL2, Address: netip.MustParseAddr("2001:db8:2::3"), Weight: 1},
						{Name: "k1", Delivery: topo.ByDT6, Locator: netip.MustParsePrefix("5f00:0:2:21::/64"), Weight: 1},
					},
				},
				{
					Name: "[2001:db8:f::4]:80", VIP: topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::4"), Port: 80},
					Dispatch: topo.Learned, Recovery: topo.AgentsRecovery, LearnEvery: 250 * time.Millisecond, Buckets: 65537, Servers: []topo.Server{s1},
				},
			},
		},
		"lb-short.yaml": {
			Node: topo.Node{
				Name: "lb", Locator: node.Locator, Interface: "eth0",
				Control: "/run/proffer/lb.sock", Pin: "/sys/fs/bpf/proffer/lb-lb",
			},
			State:        "/var/lib/proffer/lb-lb.json",
			CandidateKey: topo.Key{15: 1},
			Flows:        topo.FlowTable{Entries: 262144, Idle: 5 * time.Minute, Linger: 10 * time.Second},
			Services: []topo.Service{
				{Name: "[2001:db8:f::1]:80", VIP: vipAt(80), Dispatch: topo.Hunt, Choices: 2, Buckets: 65537, Servers: []topo.Server{s1}},
			},
		},
	} {
		got, err := ParseLB(file, schematest.Read(t, file))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", file, got, want)
		}
	}
}

func TestParseAgent(t *testing.T) {
	locator := netip.MustParsePrefix("5f00:0:2:1::/64")
	api := topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::2"), Port: 8080}
	for file, want := range map[string]*topo.Agent{
		"agent.yaml": {
			Node: topo.Node{
				Name: "s1", Locator: locator, Interface: "eth0", Control: "/run/proffer/s1.sock",
				Pin: "/sys/fs/bpf/farm/s1", Domain: prefixes("5f00::/16"), KeyFile: "/etc/proffer/s1.keys",
			},
			Flows: topo.FlowTable{Entries: 64, Idle: time.Minute, Linger: time.Second, Embryonic: 128},
			Services: []topo.Offering{
				{Name: "web", VIP: vipAt(80), Acceptance: topo.Static, Threshold: 4, Workers: 16, Cores: 2, Measure: topo.Sockets, OnFull: topo.Drop},
				{Name: "api", VIP: api, Wire: topo.Insert, Acceptance: topo.Dynamic, Window: 20, Epsilon: 0.05, Workers: 32, Cores: cpus, Measure: topo.Page, Page: "/run/proffer/web.load", PageOwner: "www-data", PageGroup: "33", PageMode: 0o600},
				{Name: "udp:192.0.2.53:53", VIP: udp("192.0.2.53", 53), Workers: 32, Cores: cpus, Measure: topo.Work, Owner: topo.Table, MAC: topo.MAC{2, 0, 0, 0, 0, 10}},
				{Name: "jail", VIP: topo.VIP{Addr: netip.MustParseAddr("192.0.2.80"), Port: 80}, Workers: 32, Cores: cpus, Measure: topo.Work, Owner: topo.Netns, Netns: "/run/netns/web"},
				{Name: "shop", VIP: topo.VIP{Addr: netip.MustParseAddr("192.0.2.81"), Port: 80}, Acceptance: topo.Static, Threshold: 4, Workers: 32, Cores: cpus, Measure: topo.Page, Source: topo.Prometheus, From: "http://127.0.0.1:9100/metrics", Of: `requests{app="shop"}`},
			},
		},
		"agent-short.yaml": {
			Node: topo.Node{
				Name: "s1.example", Locator: locator, Interface: "eth0",
				Control: "/run/proffer/agent.sock", Pin: "/sys/fs/bpf/proffer/agent-s1_example",
			},
			Flows: topo.FlowTable{Entries: 65536, Idle: 5 * time.Minute, Linger: 10 * time.Second, Embryonic: 16384},
			Services: []topo.Offering{
				{Name: "[2001:db8:f::1]:80", VIP: vipAt(80), Acceptance: topo.Always, Workers: 32, Cores: cpus, Measure: topo.Work},
				{Name: "[2001:db8:f::1]:81", VIP: vipAt(81), Acceptance: topo.Dynamic, Threshold: 1, Window: 50, Epsilon: 0.1, Workers: 32, Cores: cpus, Measure: topo.Work},
				{Name: "[2001:db8:f::1]:82", VIP: vipAt(82), Workers: 32, Cores: cpus, Measure: topo.Page, Source: topo.Apache, From: "/run/apache2/apache2.pid"},
				{Name: "[2001:db8:f::1]:83", VIP: vipAt(83), Workers: 32, Cores: cpus, Measure: topo.Page, Source: topo.PHPFPM, From: "unix:/run/php/php8.2-fpm.sock", Of: "/status"},
			},
		},
	} {
		got, err := ParseAgent(file, schematest.Read(t, file), cpus)
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
		lb, err := ParseLB(file, schematest.Read(t, file))
		if err != nil {
			t.Fatal(err)
		}
		sameLB(t, lb)
	}
	for _, file := range []string{"agent.yaml", "agent-short.yaml"} {
		agent, err := ParseAgent(file, schematest.Read(t, file), cpus)
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
	agent, err := ParseAgent("agent.yaml", schematest.Read(t, "agent-short.yaml"), 0)
	if err != nil || agent.Services[0].Cores != 1 {
		t.Fatalf("%v, %+v", err, agent)
	}
}

// TestAccepts holds files that look like mistakes and are none.
func TestAccepts(t *testing.T) {
	const head = "node: {locator: 5f00:0:1:1::/64, interface: eth0, domain: any}\nsignal_keys: none\ncandidate_key: 00000000000000000000000000000001\nservices:\n"
	const pool = "servers: [{name: s1, locator: 5f00:0:2:1::/64}]"
	for title, services := range map[string]string{
		"one port of two protocols":                 "- {vip: 192.0.2.1, port: 53, dispatch: hunt, PP}\n- {vip: 192.0.2.1, port: 53, protocol: udp, dispatch: hunt, PP}",
		"two ports of one VIP, one hashes":          "- {vip: 192.0.2.1, port: 53, dispatch: stateless, fragments: hash, PP}\n- {vip: 192.0.2.1, port: 54, dispatch: single, PP}",
		"two VIPs whose fragments are hashed":       "- {vip: 192.0.2.1, port: 53, dispatch: stateless, fragments: hash, PP}\n- {vip: 192.0.2.2, port: 53, dispatch: stateless, fragments: hash, PP}",
		"no server takes new flows":                 "- {vip: 192.0.2.1, port: 53, dispatch: hunt, servers: [{name: s1, locator: 5f00:0:2:1::/64, weight: 0}]}",
		"another name at a locator of before":       "- {vip: 192.0.2.1, port: 53, dispatch: hunt, PP, version: 1, history: [{version: 0, servers: [{name: s2, locator: 5f00:0:2:1::/64}]}]}",
		"another locator of a name of before":       "- {vip: 192.0.2.1, port: 53, dispatch: hunt, PP, version: 1, history: [{version: 0, servers: [{name: s1, locator: 5f00:0:2:2::/64}]}]}",
		"one server with four choices and one list": "- {vip: 192.0.2.1, port: 53, dispatch: hunt, choices: 4, buckets: 1, PP}",
		"SIDs on the way to a single server":        "- {vip: 192.0.2.1, port: 53, dispatch: single, via: [5f00:0:9::1, 5f00:0:9::2, 5f00:0:9::1], PP}",
		"no server at all, now and before":          "- {vip: 192.0.2.1, port: 53, dispatch: hunt, servers: [], version: 1, history: [{version: 0, servers: []}]}",
		"the values of absent keys":                 "- {vip: 2001:db8::1, port: 53, dispatch: single, wire: encap, fragments: drop, protocol: tcp, version: 0, PP}",
	} {
		lb, err := ParseLB("lb.yaml", []byte(head+strings.ReplaceAll(services, "PP", pool)))
		if err != nil {
			t.Errorf("%s: %v", title, err)
			continue
		}
		sameLB(t, lb)
	}
}

// TestMarshalLeavesDefaults: values of zero that a file may not have.
func TestMarshalLeavesDefaults(t *testing.T) {
	lb, err := ParseLB("lb.yaml", schematest.Read(t, "lb-short.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	few := *lb
	few.Pin, few.State, few.Flows.Embryonic = "", "", 0
	few.Services = []topo.Service{lb.Services[0]}
	few.Services[0].Buckets = 0
	if got, err := ParseLB("written", MarshalLB(&few)); err != nil || !reflect.DeepEqual(got, lb) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got, lb)
	}
}
