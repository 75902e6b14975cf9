package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"proffer/schema/schematest"
	"proffer/topo"
)

// reports is the report_key of the short files.
var reports = &topo.Key{15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}

func TestParseEdge(t *testing.T) {
	key := topo.Key{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	instances := []topo.EdgeInstance{{Server: 1, Core: 0, Weight: 3}, {Server: 1, Core: 1, Weight: 3}, {Server: 200}}
	for file, want := range map[string]*topo.EdgeLB{
		"edge.yaml": {
			Name: "gate", Control: "/run/proffer/gate.sock", Pin: "/sys/fs/bpf/edges/edge", Clients: "eth0", World: "eth1", Balance: topo.RoundRobin,
			Public: prefixes("203.0.113.1/32", "2001:db8:f::/64"), Key: key, RecoverAll: true,
			Flows: topo.FlowTable{Entries: 1024, Idle: 90 * time.Second}, StartReplica: []string{"/usr/local/sbin/start-node", "--wait", "30"},
			Nodes: []topo.EdgeNode{
				{Name: "n1", Server: 1, Addr: addrs("192.0.2.2")[0], Link: "eth2", Cores: 2, Weight: 3},
				{Name: "n2", Server: 200, Addr: addrs("fd00:9::2")[0], Link: "eth3", Cores: 1},
			},
			Services: []topo.EdgeService{
				{Number: 5, Cost: 700, Prefixes: prefixes("10.1.0.0/16", "2001:db8:1::/48"), Instances: instances},
				{Number: 6, Cost: 10 * time.Microsecond, Prefixes: prefixes("10.2.0.0/16"), Instances: instances},
			},
		},
		"edge-short.yaml": {
			Name: "edge", Control: "/run/proffer/edge.sock", Pin: "/sys/fs/bpf/proffer/edge-edge", Clients: "eth0", World: "eth1", Key: key, ReportKey: reports,
			Flows:    topo.FlowTable{Entries: 262144, Idle: 5 * time.Minute},
			Nodes:    []topo.EdgeNode{{Name: "n1", Addr: addrs("192.0.2.2")[0], Link: "eth2", Cores: 1, Weight: 1}},
			Services: []topo.EdgeService{{Number: 1, Prefixes: prefixes("10.1.0.0/16"), Instances: []topo.EdgeInstance{{Weight: 1}}}},
		},
	} {
		if got, err := ParseEdge(file, schematest.Read(t, file)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", file, err, got, want)
		}
	}
}

func TestParseDatapath(t *testing.T) {
	for file, want := range map[string]*topo.Datapath{
		"nf.yaml": {
			Name: "n1", Control: "/run/proffer/n1.sock", Pin: "/sys/fs/bpf/edges/nf", Server: 1, Link: "eth0", LBs: addrs("192.0.2.1", "fd00:9::1"), Cores: 2, Spread: true,
			Clients: prefixes("10.1.0.0/16", "2001:db8:1::/48"), Idle: time.Minute, Linger: 2 * time.Second,
			Chains: []topo.Chain{
				{Service: 5, Functions: []topo.Function{
					topo.Cost{Each: 2 * time.Microsecond},
					topo.Firewall{Rules: []topo.Rule{
						{Destination: prefixes("198.51.100.0/24")[0], Protocol: 6, Low: 25, High: 25},
						{Allow: true, Source: prefixes("10.1.0.0/16")[0], Low: 1, High: 1023},
					}},
					topo.SourceNAT{Public4: addrs("203.0.113.1")[0], Public6: addrs("2001:db8:f::1")[0], First: 2048, Ports: 8192},
				}},
				{Service: 6, Functions: []topo.Function{
					topo.IDS{Patterns: []topo.Pattern{{Bytes: "attack", Drop: true}, {Bytes: "12345"}}},
					topo.Rewriter{From: "abc", To: "xyz"},
					topo.Virtual{Each: 20 * time.Microsecond, Queue: 256, Noise: 0.1},
					topo.User{Run: topo.ByteCounter},
				}},
			},
		},
		"nf-short.yaml": {
			Name: "n1", Control: "/run/proffer/nf.sock", Pin: "/sys/fs/bpf/proffer/nf-n1", Server: 1, Link: "eth0", LBs: addrs("192.0.2.1"), Cores: 1, ReportKey: reports,
			Clients: prefixes("10.1.0.0/16"), Idle: 5 * time.Minute, Linger: 10 * time.Second,
			Chains: []topo.Chain{{Service: 1, Functions: []topo.Function{topo.Cost{Each: 2 * time.Microsecond}}}},
		},
	} {
		if got, err := ParseDatapath(file, schematest.Read(t, file)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", file, err, got, want)
		}
	}
}

func TestEdgeRefuses(t *testing.T) {
	schematest.Refused(t, "edge", *update, func(data []byte) error {
		_, err := ParseEdge("edge.yaml", data)
		return err
	})
	schematest.Refused(t, "nf", *update, func(data []byte) error {
		_, err := ParseDatapath("nf.yaml", data)
		return err
	})
}

// TestEdgeInstances: a file with more cores than a service's table has rows is refused.
func TestEdgeInstances(t *testing.T) {
	text := string(schematest.Read(t, "edge-short.yaml"))
	nodes := ""
	for i := range 5 {
		n := string(rune('0' + i))
		nodes += "{name: n" + n + ", number: " + n + ", address: 192.0.2.1" + n + ", link: eth2, cores: 64}, "
	}
	const one = "{name: n1, number: 0, address: 192.0.2.2, link: eth2}"
	_, err := ParseEdge("edge.yaml", []byte(strings.Replace(text, one, nodes, 1)))
	const want = "nodes: have 320 cores together, for 1 services; want at most 256"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
