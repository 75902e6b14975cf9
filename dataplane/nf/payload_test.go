package nf_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/dataplane/nf"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// chained has one service with these functions.
func chained(functions ...topo.Function) func(*topo.Datapath) {
	return func(cfg *topo.Datapath) { cfg.Chains[0].Functions = functions }
}

// with is the flow's packet with a payload.
func (f flow) with(payload string) []byte {
	ip := wire.IP{Source: f.from.Addr(), Destination: f.to.Addr(), HopLimit: 50, Class: 0x28, ID: 7}
	if f.kind == "udp" {
		return ip.UDP(f.from.Port(), f.to.Port(), []byte(payload))
	}
	return ip.TCP(wire.TCP{From: f.from.Port(), To: f.to.Port(), Flags: f.flags, Options: []byte{1, 1, 1, 1}}, []byte(payload))
}

// passes sends a packet through the chain and checks that it leaves, or the reason why not.
func (b *bench) passes(t *testing.T, label string, packet []byte, reason string, beside ...string) {
	t.Helper()
	out := b.run(t, around(to(0, costly), packet))
	if reason != "" {
		out.Is(t, label, rig.XDPDrop, nil, append(beside, reason)...)
		return
	}
	left := "direct"
	if slices.Contains(out.Reasons, "pass_to_router") { // IPv6 has no route here
		left = "pass_to_router"
	}
	out.Is(t, label, out.Action, nil, append(beside, left)...)
}

// testFirewall: rules decide on first packets, in order; state lets the others pass, both ways, until
// the connection is over.
func testFirewall(t *testing.T, seen rig.Hits) {
	const admitted, denied, stateless = "firewall_admitted", "drop_firewall_denied", "drop_firewall_state"
	b := newBench(t, seen, chained(topo.Firewall{Rules: []topo.Rule{
		{Destination: netip.MustParsePrefix("198.51.100.128/25")},
		{Allow: true, Source: netip.MustParsePrefix("10.1.0.0/16"), Protocol: 6, Low: 80, High: 81},
		{Allow: true, Destination: netip.MustParsePrefix("2001:db8:9::/64")},
		{Allow: true, Protocol: 1},
	}}))
	syn := outward("tcp", 4, 1)
	b.passes(t, "data without a SYN", syn.reversed().later().packet(), stateless)
	b.passes(t, "answer without a question", syn.reversed().packet(), denied)
	b.passes(t, "SYN", syn.packet(), "", admitted)
	answer := syn.reversed()
	answer.flags = wire.SYN | wire.ACK
	b.passes(t, "answer", answer.packet(), "")
	b.passes(t, "data", syn.later().packet(), "")
	for _, c := range []struct {
		label string
		port  uint16
		addr  string
		want  string
	}{{"port 81", 81, "198.51.100.9", ""}, {"port 79", 79, "198.51.100.9", denied}, {"port 82", 82, "198.51.100.9", denied}, {"denied net", 80, "198.51.100.130", denied}} {
		f := syn
		f.to = netip.AddrPortFrom(netip.MustParseAddr(c.addr), c.port)
		var beside []string
		if c.want == "" {
			beside = []string{admitted}
		}
		b.passes(t, c.label, f.packet(), c.want, beside...)
	}
	b.passes(t, "UDP over IPv4", outward("udp", 4, 1).packet(), denied)
	b.passes(t, "UDP over IPv6", outward("udp", 6, 1).packet(), "", admitted)
	b.passes(t, "IPv6's answer", outward("udp", 6, 1).reversed().packet(), "")
	b.passes(t, "echo", outward("echo", 4, 1).packet(), "", admitted)
	testFirewallEnds(t, b, syn)
}

// testFirewallEnds: a connection's state goes after both sides closed and lingered, or when it is idle.
func testFirewallEnds(t *testing.T, b *bench, syn flow) {
	t.Helper()
	fin := syn
	fin.flags = wire.FIN | wire.ACK
	b.passes(t, "FIN", fin.packet(), "")
	b.passes(t, "FIN back", fin.reversed().packet(), "")
	b.passes(t, "last ACK", syn.later().packet(), "")
	b.passes(t, "again", syn.packet(), "", "firewall_admitted")
	rst := syn
	rst.flags = wire.RST | wire.ACK
	b.passes(t, "RST", rst.reversed().packet(), "")
	b.at(t, b.now-time.Second) // they were seen after the sweep read its clock
	swept, err := b.SweepTurn()
	if must(t, err); swept.Removed != 0 {
		t.Errorf("a sweep removed %d connections of now", swept.Removed)
	}
	b.at(t, b.now+3*time.Second)
	swept, err = b.SweepTurn()
	must(t, err)
	if swept.Removed != 1 || swept.Kept != 3 {
		t.Errorf("after a RST the sweep removed %d and kept %d, want 1 and 3", swept.Removed, swept.Kept)
	}
	b.passes(t, "after the end", syn.reversed().later().packet(), "drop_firewall_state")
	b.at(t, b.now+10*time.Second)
	if swept, err = b.SweepTurn(); err != nil || swept.Removed != 3 || swept.Kept != 0 {
		t.Errorf("after %v the sweep removed %d and kept %d, %v", 10*time.Second, swept.Removed, swept.Kept, err)
	}
}

// testOrder: a firewall before NAT sees the client network's addresses in both directions, as inward
// packets meet the chain in reverse order.
func testOrder(t *testing.T, seen rig.Hits) {
	rules := topo.Firewall{Rules: []topo.Rule{{Allow: true, Source: netip.MustParsePrefix("10.1.0.0/16")}}}
	b := newBench(t, seen, chained(rules, topo.SourceNAT{Public4: public4, First: first, Ports: ports}))
	f, there := outward("udp", 4, 1), to(0, costly)
	out := b.run(t, around(there, f.packet()))
	out.Is(t, "question", redirect, nil, "firewall_admitted", "nat_bound", "returned")
	after := f.after(portOf(t, "question", out, "udp"))
	b.run(t, around(there, after.reversed().packet())).Is(t, "answer", redirect, around(rig.Back(there), f.reversed().packet()), "returned")
}

// testIDS: each pattern counts the packets that have it, wherever it is; those set to are dropped.
func testIDS(t *testing.T, seen rig.Hits) {
	patterns := []topo.Pattern{{Bytes: "attack"}, {Bytes: "0123456789abcdef"}, {Bytes: "X", Drop: true}, {Bytes: "\x00\x00\x00"}}
	b := newBench(t, seen, chained(topo.IDS{Patterns: patterns}))
	var want [4]uint64
	for _, family := range []int{4, 6} {
		for _, kind := range []string{"tcp", "udp"} {
			f := outward(kind, family, 1)
			for _, payload := range []string{
				"", "a", "attack", "attac", "an attack and an attack", strings.Repeat("a", 1300) + "attack", "attack0123456789abcdef", "0123456789abcde", "the end: \x00\x00\x00", "\x00\x00", "X", "attackX",
			} {
				reason := ""
				for i, p := range patterns {
					if strings.Contains(payload, p.Bytes) {
						want[i]++
						if p.Drop {
							reason = "drop_ids"
						}
					}
				}
				b.passes(t, payload, f.with(payload), reason)
			}
		}
	}
	b.passes(t, "echo", outward("echo", 4, 1).packet(), "")
	got, err := b.Matches(costly, 0, len(patterns))
	must(t, err)
	if !slices.Equal(got, want[:]) {
		t.Errorf("matches %v, want %v", got, want)
	}
}

// testRewriter: the payload that returns to the LB is that of a packet built from scratch with the
// other bytes, checksums among them; packets without the pattern go straight on.
func testRewriter(t *testing.T, seen rig.Hits) {
	for _, change := range []topo.Rewriter{{From: "red", To: "blu"}, {From: "a", To: "b"}, {From: "0123456789abcdef", To: "ABCDEFGHIJKLMNOP"}} {
		b := newBench(t, seen, chained(change))
		for _, family := range []int{4, 6} {
			for _, kind := range []string{"tcp", "udp"} {
				f := outward(kind, family, 1)
				for _, payload := range []string{
					change.From, "_" + change.From, change.From + change.From + "__" + change.From, strings.Repeat("-", 1299) + change.From, "no" + change.From[:len(change.From)-1], "",
				} {
					b.rewritten(t, f, payload, strings.ReplaceAll(payload, change.From, change.To))
				}
			}
		}
	}
}

func (b *bench) rewritten(t *testing.T, f flow, payload, want string) {
	t.Helper()
	if payload == want {
		b.passes(t, payload, f.with(payload), "")
		return
	}
	there := to(0, costly)
	b.run(t, around(there, f.with(payload))).Is(t, f.kind+" "+payload, redirect, around(rig.Back(there), f.with(want)), "returned")
}

// TestBadSettings: settings that no function can have are refused, with a message that names them.
func TestBadSettings(t *testing.T) {
	enter(t)
	for want, f := range map[string]topo.Function{
		"cost 0s: want more than 0":                topo.Cost{},
		"cost 1h0m0s: want more than 0 and at":     topo.Cost{Each: time.Hour},
		"nat: 64 ports of each of 2 cores from 80": topo.SourceNAT{Public4: public4, First: 80, Ports: 64},
		"nat: 100 ports":                           topo.SourceNAT{Public4: public4, First: 1024, Ports: 100},
		"nat: 32768 ports of each of 2 cores":      topo.SourceNAT{Public4: public4, First: 1024, Ports: 32768},
		"nat: public addresses":                    topo.SourceNAT{First: 1024, Ports: 64},
		"firewall: 33 rules":                       topo.Firewall{Rules: make([]topo.Rule, 33)},
		"firewall: rule 1 has ports 9 to 8":        topo.Firewall{Rules: []topo.Rule{{Low: 9, High: 8}}},
		"ids: 0 patterns":                          topo.IDS{},
		"ids: a pattern of 17 bytes":               topo.IDS{Patterns: []topo.Pattern{{Bytes: "0123456789abcdefg"}}},
		`rewriter: "a" to "bb"`:                    topo.Rewriter{From: "a", To: "bb"},
		"a chain has one function in user space":   topo.User{},
		"service 1 with 9 functions":               nil,
	} {
		cfg := config()
		cfg.Chains = cfg.Chains[:1]
		cfg.Chains[0].Functions = []topo.Function{f}
		if f == (topo.User{}) {
			cfg.Chains[0].Functions = append(cfg.Chains[0].Functions, f)
		}
		if f == nil {
			cfg.Chains[0].Functions = make([]topo.Function, 9)
		}
		if _, err := nf.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%#v: %v, want an error with %q", f, err, want)
		}
	}
}
