package edge_test

import (
	"net/netip"
	"strings"
	"testing"

	"proffer/proof/rig"
	"proffer/topo"
)

// testApply: nodes, services and prefixes come and go while flows stay where they are; those of a node
// that is gone move, and its packets are a stranger's.
func testApply(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen)
	first := config()
	one := from4("tcp", 11)
	to := b.tunnelled(t, "first", b.fromClient(t, one.packet()), one.packet(), "flow_begun", "steer")

	drained := config()
	drained.Services[0].Instances[0].Weight, drained.Services[0].Instances[1].Weight, drained.Services[0].Instances[2].Weight = 0, 0, 0
	must(t, b.Apply(drained))
	other := from4("tcp", 12)
	b.fromClient(t, other.packet()).Is(t, "all are drained", rig.XDPDrop, nil, "drop_no_instance")
	if stays := b.tunnelled(t, "drained", b.fromClient(t, one.packet()), one.packet(), "steer"); stays.Instance != to.Instance {
		t.Errorf("a drained flow went to %+v, not to %+v", stays.Instance, to.Instance)
	}
	b.fromNode(t, back(to), one.packet()).Is(t, "changed at a drained node", redirect, nil, "update_known")

	fewer := config()
	fewer.Nodes = fewer.Nodes[:1] // node 1
	if to.Instance.Server == 1 {
		fewer.Nodes = first.Nodes[1:]
	}
	fewer.Services[0].Instances = []topo.EdgeInstance{{Server: fewer.Nodes[0].Server, Weight: 1}}
	must(t, b.Apply(fewer))
	b.fromNode(t, back(to), one.packet()).Is(t, "from a node that is gone", rig.XDPDrop, nil, "drop_stranger")
	moved := b.tunnelled(t, "gone", b.fromClient(t, one.packet()), one.packet(), "flow_moved", "steer")
	if moved.Instance.Server != fewer.Nodes[0].Server {
		t.Errorf("moved to %+v", moved.Instance)
	}
	if err := b.SetNextHop(to.Instance.Server, nodeMAC(9)); err == nil {
		t.Error("a node that is gone has a next hop")
	}

	again := config()
	again.Services[0].Instances = []topo.EdgeInstance{{Server: to.Instance.Server, Core: to.Instance.Core, Weight: 1}}
	must(t, b.Apply(again))
	b.fromClient(t, other.packet()).Is(t, "no next hop yet", rig.XDPDrop, nil, "drop_no_instance")
	must(t, b.SetNextHop(to.Instance.Server, nodeMAC(to.Instance.Server)))
	if back := b.tunnelled(t, "added", b.fromClient(t, other.packet()), other.packet(), "flow_begun", "steer"); back.Instance != to.Instance {
		t.Errorf("a new flow went to %+v, not to the node that came again", back.Instance)
	}
	if counts, err := b.Counts(service); err != nil || counts[0].Flows != 2 || counts[0].Packets.Total() != 3 {
		t.Errorf("the instance counts %+v (%v), want those before it was gone, too", counts, err)
	}

	moves := config()
	moves.Services = []topo.EdgeService{{Number: 6, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.3.0.0/16")}, Instances: first.Services[0].Instances}}
	must(t, b.Apply(moves))
	third := from4("tcp", 13)
	b.fromClient(t, third.packet()).Is(t, "a prefix that is gone", rig.XDPDrop, nil, "drop_wrong_side")
	b.fromWorld(t, third.reversed().packet()).Is(t, "to a prefix that is gone", rig.XDPPass, nil, "pass_not_edge")
	b.fromClient(t, other.packet()).Is(t, "a service that is gone", rig.XDPDrop, nil, "drop_wrong_side")
}

// TestApplyRefuses: a configuration with a mistake changes nothing.
func TestApplyRefuses(t *testing.T) {
	b := newBench(t, rig.Hits{})
	for want, change := range map[string]func(*topo.EdgeLB){
		"link \"none\"":                     func(c *topo.EdgeLB) { c.Nodes[0].Link, c.Nodes[0].Cores = "none", 3 },
		"links of their own":                func(c *topo.EdgeLB) { c.Nodes[0].Link = "world" },
		"want 1 to 511":                     func(c *topo.EdgeLB) { c.Services[0].Number = 512 },
		"more than 4095 instances":          func(c *topo.EdgeLB) { manyServices(c) },
		"weight -1":                         func(c *topo.EdgeLB) { c.Services[0].Instances[0].Weight = -1 },
		"no address of the family":          func(c *topo.EdgeLB) { c.Nodes = append(c.Nodes, unreachable()) },
		"want a number up to 255, and 1 to": func(c *topo.EdgeLB) { c.Nodes[0].Cores = 65 },
	} {
		cfg := config()
		cfg.Public = nil
		change(cfg)
		if err := b.Apply(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	unsolicited := flow{"tcp", netip.AddrPortFrom(remote4, 80), netip.AddrPortFrom(public, 1234)}
	b.fromWorld(t, unsolicited.packet()).Is(t, "after mistakes", rig.XDPDrop, nil, "drop_unsolicited")
	f := from4("udp", 4)
	b.tunnelled(t, "after mistakes", b.fromClient(t, f.packet()), f.packet(), "flow_begun", "steer")
}

func manyServices(c *topo.EdgeLB) {
	c.Services[0].Instances = nil
	for server := range 64 {
		for core := range 64 {
			c.Services[0].Instances = append(c.Services[0].Instances, topo.EdgeInstance{Server: server, Core: core})
		}
	}
}

// unreachable is a node on a link without an address.
func unreachable() topo.EdgeNode {
	return topo.EdgeNode{Server: 7, Addr: nodeAddr[0], Link: "world-far", Cores: 1}
}
