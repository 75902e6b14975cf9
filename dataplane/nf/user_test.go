package nf_test

import (
	"net/netip"
	"testing"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// testUser: a packet for user space leaves by its core's link in its tunnel's headers, changed so far or
// not; a packet that comes back goes on behind the function, in both directions. userspace/ has the sockets.
func testUser(t *testing.T, seen rig.Hits) {
	b := newBench(t, seen, func(cfg *topo.Datapath) {
		cfg.Chains[0].Functions = []topo.Function{topo.User{}}
		cfg.Chains[1].Functions = []topo.Function{topo.User{}, topo.SourceNAT{Public4: public4, First: first, Ports: ports}}
	})
	question := outward("udp", 4, 1)
	b.run(t, around(to(1, costly), question.packet())).Is(t, "without a link", rig.XDPDrop, nil, "drop_no_user")
	b.runs(t, b.Objects().NodeHand, around(to(1, costly), question.packet())).Is(t, "without a socket", rig.XDPDrop, nil, "drop_no_user")
	b.runs(t, b.Objects().NodeHand, question.packet()).Is(t, "no tunnel", rig.XDPPass, nil, "pass_not_tunnel")
	const loopback = 1 // the link that packets of BPF_PROG_RUN come from
	mac := topo.MAC{2, 0, 0, 0, 0, 0x77}
	must(t, b.Objects().UserLinks.Put(uint32(1), objects.NFUserLink{Index: loopback, Mac: mac}))
	given := func(service int) wire.Tunnel {
		w := to(1, service)
		w.LinkTo, w.LinkFrom = mac, mac
		return w
	}
	resume := func(w wire.Tunnel, packet []byte) rig.Outcome {
		return b.runs(t, b.Objects().NodeResume, around(w, packet))
	}
	b.run(t, around(to(1, costly), question.packet())).Is(t, "given", redirect, around(given(costly), question.packet()), "user_given")
	left := resume(given(costly), question.packet())
	left.Is(t, "back, unchanged", redirect, nil, "direct", "user_back")
	changed := given(costly)
	changed.Instance.Update = true
	resume(changed, question.packet()).Is(t, "back, changed", redirect, nil, "returned", "user_back")

	costs := question
	question = outward("udp", 4, 2) // a flow has one service
	b.run(t, around(to(1, natted), question.packet())).Is(t, "before NAT", redirect, around(given(natted), question.packet()), "user_given")
	out := resume(given(natted), question.packet())
	after := question.after(portOf(t, "NAT", out, "udp"))
	out.Is(t, "NAT after it", redirect, around(rig.Back(to(1, natted)), after.packet()), "nat_bound", "returned", "user_back")
	answer := given(natted)
	answer.Instance.Update = true
	b.run(t, around(to(1, natted), after.reversed().packet())).Is(t, "after NAT's change", redirect, around(answer, question.reversed().packet()), "user_given")
	resume(answer, question.reversed().packet()).Is(t, "the change is kept", redirect, around(rig.Back(to(1, natted)), question.reversed().packet()), "returned", "user_back")

	const bad = "drop_user_frame"
	for label, change := range map[string]func(*wire.Tunnel){
		"another core":    func(w *wire.Tunnel) { w.Instance.Core = 0 },
		"another service": func(w *wire.Tunnel) { w.Instance.Service = 9 },
		"congested":       func(w *wire.Tunnel) { w.Class = 3 },
	} {
		w := given(costly)
		change(&w)
		resume(w, question.packet()).Is(t, label, rig.XDPDrop, nil, bad)
	}
	resume(given(costly), question.packet()[:30]).Is(t, "cut short", rig.XDPDrop, nil, bad)
	b.runs(t, b.Objects().NodeResume, wire.Frame(mac, mac, question.packet())).Is(t, "no tunnel", rig.XDPPass, nil, "pass_not_tunnel")
	stranger := given(costly)
	stranger.From = netip.MustParseAddr("192.0.2.66")
	stranger.Instance.Update = true
	resume(stranger, costs.packet()).Is(t, "no LB", rig.XDPDrop, nil, "drop_no_lb", "user_back")
}
