package lb_test

import (
	"net/netip"
	"testing"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// serving has a service serve the clients of these prefixes alone.
func serving(prefixes ...string) func(*topo.Service) {
	return func(s *topo.Service) {
		for _, p := range prefixes {
			s.Allow = append(s.Allow, netip.MustParsePrefix(p))
		}
	}
}

// prefixesIn counts the prefixes in the map.
func prefixesIn(t *testing.T, r *rig.LB) (n int) {
	t.Helper()
	var key, value []byte
	it := r.Objects().AllowedClients.Iterate()
	for it.Next(&key, &value) {
		n++
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// testAllow: packets of clients that a service does not serve are dropped, whatever they look like, as are those of a
// flow whose client is served no more; another service serves all.
func testAllow(t *testing.T, seen rig.Hits) {
	four := rig.Hunting(2, 8, rig.Over4, serving("10.9.0.0/16", rig.Client4.String()+"/32"))
	hashed := rig.Service(81, topo.Stateless, 1, 8)
	hashed.Fragments = topo.HashFragments
	serving("2001:db8:77::/48")(&hashed)
	six := func(s *topo.Service) { serving(rig.ClientAddr.String()+"/64", "2001:db8:77::/48")(s) }
	masked := func(s *topo.Service) {
		six(s)
		s.Allow[0] = s.Allow[0].Masked()
	}
	open := rig.Hunting(2, 8, func(s *topo.Service) { s.VIP.Port = 8081 })
	r := rig.NewLB(t, seen, rig.Hunting(2, 8, masked), four, hashed, open)
	anyClient(t, r)
	from := func(p rig.Packet, addr string) rig.Packet {
		p.Src = netip.AddrPortFrom(netip.MustParseAddr(addr), p.Src.Port())
		return p
	}
	refused := func(label string, frame []byte) {
		t.Helper()
		r.Send(t, frame).Is(t, label, rig.XDPDrop, nil, "drop_not_allowed")
	}
	syn, ack := rig.Inward(rig.HuntPort, wire.SYN), rig.Inward(rig.HuntPort, wire.ACK)
	r.Send(t, syn.Frame()).Is(t, "a client", rig.XDPTX, nil, "offer")
	r.Send(t, from(syn, "2001:db8:77::9").Frame()).Is(t, "another one", rig.XDPTX, nil, "offer")
	refused("a stranger's SYN", from(syn, "2001:db8:78::9").Frame())
	refused("a stranger's data", from(ack, "2001:db8:78::9").Frame())
	for _, change := range rig.Changes(false) {
		refused("a stranger's options", change(from(syn, "2001:db8:78::9").Frame()))
	}
	r.Send(t, from(rig.Sized(ack, 20000), "2001:db8:78::9").Frame()).Is(t, "a stranger's, too long for XDP", rig.XDPDrop, nil, "drop_not_allowed")
	r.Send(t, rig.OverIPv4(syn).Frame()).Is(t, "an IPv4 client", rig.XDPTX, nil, "offer")
	refused("an IPv4 stranger", from(rig.OverIPv4(syn), "10.10.0.1").Frame())
	refused("a stranger of a hashed service", rig.Inward(81, wire.SYN).Frame())
	for _, f := range fragmentsOf(rig.Inward(81, wire.ACK)) {
		refused("a fragment", f)
	}
	for _, f := range fragmentsOf(from(rig.Inward(81, wire.ACK), "2001:db8:77::9")) {
		r.Send(t, f).Is(t, "a client's fragment", rig.XDPTX, nil, "deliver")
	}
	r.Send(t, from(rig.Inward(8081, wire.SYN), "2001:db8:78::9").Frame()).Is(t, "of a service without a list", rig.XDPTX, nil, "offer")

	r.Accepted(t, r.List(t, 0, syn.Flow())[0], syn)
	r.Confirm(t, syn)
	data := payload(syn)
	data.Flags, data.Seq, data.Ack = wire.ACK, syn.Seq+1, rig.ServerISN+1
	r.Send(t, data.Frame()).Is(t, "of a flow", rig.XDPTX, nil, "steer")
	if n := prefixesIn(t, r); n != 5 {
		t.Errorf("%d prefixes in the map, want 5", n)
	}
	for range 3 {
		r.Reconfigure(t, rig.Hunting(2, 8, serving("2001:db8:77::/48")))
		r.Reconfigure(t, rig.Hunting(2, 8, serving("2001:db8:79::/48", "10.0.0.0/8")))
	}
	anyClient(t, r)
	refused("of a flow whose client is served no more", data.Frame())
	if n := prefixesIn(t, r); n != 2 {
		t.Errorf("%d prefixes in the map after reloads, want 2", n)
	}
	r.Reconfigure(t, rig.Hunting(2, 8))
	anyClient(t, r)
	r.Send(t, data.Frame()).Is(t, "of a flow, of a service that serves all", rig.XDPTX, nil, "steer")
	if n := prefixesIn(t, r); n != 0 {
		t.Errorf("%d prefixes in the map without lists", n)
	}
}
