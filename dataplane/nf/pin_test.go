package nf_test

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"proffer/dataplane/nf"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// pinned is a node in this namespace that is attached, with pins.
func pinned(t *testing.T, cfg *topo.Datapath) *bench {
	t.Helper()
	b := &bench{seen: rig.Hits{}}
	var err error
	b.Node, err = nf.NewWith(cfg, func(spec *ebpf.CollectionSpec) error { return spec.Variables["virtual_time"].Set(true) })
	must(t, err)
	t.Cleanup(func() { b.Close() })
	must(t, b.Reach("", topo.NextHops{netip.PrefixFrom(lbAddr, 32): lbMAC}))
	must(t, b.Attach())
	b.clock = rig.SectionOf(t, b.Objects().NodeNat, ".bss")
	b.at(t, rig.Start)
	return b
}

// program is the number of the XDP program on the link.
func program(t *testing.T) uint32 {
	t.Helper()
	l, err := netlink.LinkByName("lb")
	must(t, err)
	if x := l.Attrs().Xdp; x != nil && x.Attached {
		return x.ProgId
	}
	return 0
}

// guarded is a configuration with a firewall before NAT, pinned.
func guarded(t *testing.T) *topo.Datapath {
	cfg := config()
	cfg.Pin = filepath.Join(rig.BPFFS(t), "nf")
	cfg.Chains[1].Functions[0] = topo.Firewall{Rules: []topo.Rule{{Allow: true}}}
	return cfg
}

// goesOn demands that a TCP flow behind NAT and firewall goes on by its public port, and that the node owns it.
func (b *bench) goesOn(t *testing.T, label string, f, after flow) {
	t.Helper()
	data := f
	data.flags = wire.ACK
	out := b.run(t, around(to(1, natted), data.packet()))
	out.Is(t, label, redirect, nil, "returned")
	if port := portOf(t, label, out, "tcp"); port != after.from.Port() {
		t.Errorf("%s: the public port is %d, and was %d", label, port, after.from.Port())
	}
	back := after.reversed()
	back.flags = wire.ACK
	b.run(t, around(to(1, natted), back.packet())).Is(t, label+", an answer", redirect, nil, "returned")
	b.owner(t, label, data.packet(), 1, natted)
}

// TestTakesOver: the program of a node that has ended stays; the next node takes over its flows, bindings, ports and
// firewall states, with another chain beside and another public address first. Its ports come free after the flows.
func TestTakesOver(t *testing.T) {
	enter(t)
	cfg := guarded(t)
	first := pinned(t, cfg)
	f := outward("tcp", 4, 1000)
	after := f.after(portOf(t, "begin", first.run(t, around(to(1, natted), f.packet())), "tcp"))
	was := program(t)
	must(t, first.Close())
	if now := program(t); now != was || now == 0 {
		t.Errorf("the program was %d, and is %d after the end", was, now)
	}
	next := *cfg
	next.Chains = append([]topo.Chain{{Service: costly, Functions: []topo.Function{topo.SourceNAT{Public4: netip.MustParseAddr("203.0.113.77"), First: 4096, Ports: ports}}}}, cfg.Chains[1])
	second := pinned(t, &next)
	if !second.Adopted() || second.Forgotten() != "" || program(t) == was {
		t.Errorf("adopted %v, forgotten %q, program %d", second.Adopted(), second.Forgotten(), program(t))
	}
	second.goesOn(t, "taken over", f, after)
	second.at(t, second.now+11*time.Second)
	if swept, err := second.SweepTurn(); err != nil || swept.Kept != 0 {
		t.Errorf("the sweep kept %d, %v", swept.Kept, err)
	}
	must(t, second.Detach())
	if left, err := filepath.Glob(filepath.Join(cfg.Pin, "*", "*")); err != nil || len(left) > 0 || program(t) != 0 {
		t.Errorf("pins stay: %v, %v; program %d", left, err, program(t))
	}
}

// TestApply: a node goes to another configuration between two packets, with its flows and counters, and back; the next
// daemon takes over what it has then.
func TestApply(t *testing.T) {
	for _, pins := range []bool{true, false} {
		enter(t)
		cfg := guarded(t)
		if !pins {
			cfg.Pin = ""
		}
		b := pinned(t, cfg)
		f := outward("tcp", 4, 1000)
		after := f.after(portOf(t, "begin", b.run(t, around(to(1, natted), f.packet())), "tcp"))
		was := program(t)
		next := *cfg
		next.Cores = 4
		next.Chains = []topo.Chain{{Service: natted, Functions: append(append([]topo.Function{}, cfg.Chains[1].Functions...), topo.Cost{Each: time.Microsecond})}}
		must(t, b.Apply(&next))
		b.clock = rig.SectionOf(t, b.Objects().NodeNat, ".bss")
		b.at(t, rig.Start)
		if program(t) == was {
			t.Error("the program is the same")
		}
		b.goesOn(t, "after the change", f, after)
		b.run(t, around(to(0, costly), f.packet())).Is(t, "a chain that is gone", rig.XDPDrop, nil, "drop_impossible_id")
		bad := next
		bad.Chains = []topo.Chain{{Service: natted, Functions: []topo.Function{topo.SourceNAT{Public4: public4, First: 1, Ports: 64}}}}
		if err := b.Apply(&bad); err == nil {
			t.Error("a wrong chain is applied")
		}
		b.goesOn(t, "after a refused change", f, after)
		if n, err := b.Count(1, natted); err != nil || n.Packets != 5 {
			t.Errorf("%d packets are counted, %v", n.Packets, err)
		}
		if _, err := b.SweepTurn(); err != nil {
			t.Error(err)
		}
		b.goesOn(t, "after a sweep", f, after)
		must(t, b.Close())
		if !pins {
			if program(t) != 0 {
				t.Error("a program stays without pins")
			}
			continue
		}
		last := pinned(t, cfg)
		last.goesOn(t, "taken over", f, after)
		must(t, last.Detach())
	}
}
