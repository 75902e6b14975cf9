package nf_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"proffer/dataplane"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestFollowsLink: a changed packet returns from the link's and the node's addresses of now; a link that was deleted is
// gone.
func TestFollowsLink(t *testing.T) {
	b := newBench(t, rig.Hits{})
	follows := func(want ...string) {
		t.Helper()
		changed, err := b.Follow()
		for _, part := range want {
			if err != nil || !strings.Contains(changed, part) {
				t.Errorf("it followed %q, %v; want %q", changed, err, part)
			}
		}
	}
	if changed, err := b.Follow(); changed != "" || err != nil {
		t.Errorf("a link that is as it was: %q, %v", changed, err)
	}
	l, err := netlink.LinkByName("lb")
	must(t, err)
	mac, addr := topo.MAC{2, 0, 0, 0, 0, 0x77}, nodeAddr.Next()
	must(t, netlink.LinkSetHardwareAddr(l, mac[:]))
	must(t, netlink.LinkSetMTU(l, 1570))
	for _, change := range []struct {
		do   func(netlink.Link, *netlink.Addr) error
		addr string
	}{{netlink.AddrDel, nodeAddr.String()}, {netlink.AddrAdd, addr.String()}} {
		a, err := netlink.ParseAddr(change.addr + "/24")
		must(t, err)
		must(t, change.do(l, a))
	}
	follows("address "+net.HardwareAddr(here[:]).String()+" is now "+net.HardwareAddr(mac[:]).String(), "MTU 1600 is now 1570", "address 192.0.2.2 for 192.0.2.1 is now 192.0.2.3")
	if b.Address(0) != addr {
		t.Errorf("the address for the LB is %v", b.Address(0))
	}
	asked := to(0, natted)
	asked.To = addr
	out := b.run(t, asked.Around(outward("udp", 4, 5).packet()))
	tunnel, _, err := wire.ParseTunnel(out.Frame)
	if err != nil || tunnel.LinkFrom != mac || tunnel.From != addr {
		t.Errorf("a changed packet: %v, %+v (%v)", out.Reasons, tunnel, err)
	}
	must(t, netlink.LinkSetName(l, "other"))
	follows("name lb is now other")
	if name := b.Link("lb").Name; name != "other" {
		t.Errorf("the link's name is %s", name)
	}
	must(t, netlink.LinkDel(l))
	if _, err := b.Follow(); !errors.Is(err, dataplane.ErrLinkGone) {
		t.Errorf("a deleted link: %v", err)
	}
}

// TestServesVirtualRouter: frames for another link address than the link's, such as a virtual router's, are taken, and
// changed packets leave from the link's own. What goes to the kernel from them has that address, as a macvlan takes it.
func TestServesVirtualRouter(t *testing.T) {
	b := newBench(t, rig.Hits{})
	virtual := topo.MAC{0, 0, 0x5e, 0, 1, 7}
	for _, own := range []topo.MAC{here, virtual} {
		at := func(service int) wire.Tunnel {
			w := to(0, service)
			w.LinkTo = own
			return w
		}
		b.run(t, around(at(costly), outward("udp", 4, 5).packet())).Is(t, "sent on", redirect, nil, "direct")
		changed := b.run(t, around(at(natted), outward("udp", 4, 6).packet()))
		if tunnel, _, err := wire.ParseTunnel(changed.Frame); err != nil || tunnel.LinkFrom != here || tunnel.LinkTo != lbMAC {
			t.Errorf("for %x: %v, %+v (%v)", own, changed.Reasons, tunnel, err)
		}
		six := b.run(t, around(at(costly), outward("udp", 6, 5).packet())) // no route
		six.Is(t, "the kernel's", rig.XDPPass, nil, "pass_to_router")
		if got := topo.MAC(six.Frame[:6]); got != own {
			t.Errorf("a frame for %x goes to the kernel for %x", own, got)
		}
	}
}
