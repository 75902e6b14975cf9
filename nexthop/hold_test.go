package nexthop

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"proffer/topo"
)

// entries are the neighbours of the addresses as the kernel has them now.
func (h *host) entries(addrs ...netip.Addr) (list []entry) {
	h.do(func() error {
		for _, a := range addrs {
			list = append(list, h.w.find(a))
		}
		return nil
	})
	return list
}

// isHeld: the kernel spares the neighbour where its table is full, and confirms it by itself.
func (e entry) isHeld() bool {
	return e.owner == owner && e.flags&netlink.NTF_EXT_LEARNED != 0 && e.extended&netlink.NTF_EXT_MANAGED != 0
}

// TestTargetsAreHeld: the kernel spares the gateways and the neighbours of targets, follows their link
// addresses, and has them as any other once they are no targets: of this process or one before it. A
// stranger's address is not held, nor is a neighbour taken from another program, nor a permanent one changed.
func TestTargetsAreHeld(t *testing.T) {
	h := newDual(t)
	refresh := func(w *Watcher, targets ...netip.Addr) {
		t.Helper()
		h.do(func() error { return w.Refresh(targets) })
	}
	check := func(label string, want bool, addrs ...netip.Addr) {
		t.Helper()
		for _, e := range h.entries(addrs...) {
			if e.isHeld() != want {
				t.Errorf("%s: %+v", label, e)
			}
		}
	}
	h.do(func() error { return h.w.Resolve(near) })
	check("a stranger's", false, near)
	h.changed("all are known", func() error { return h.w.Refresh([]netip.Addr{near, near4, far, far4}) }, func(hops topo.NextHops, waiting int) bool {
		return waiting == 0 && h.at(hops, near) && h.at(hops, near4) && h.at(hops, far) && h.at(hops, far4)
	})
	check("targets", true, near, near4, gateway, gateway4)
	h.do(func() error { return h.w.Resolve(near) })
	check("one that packets lacked, too", true, near)

	want := topo.MAC{2, 0, 0, 0, 0x77, 9}
	port := h.router.link("port0")
	h.changed("the new link addresses are known", func() error {
		h.router.do(func() error { return netlink.LinkSetHardwareAddr(port, want[:]) })
		return nil
	}, func(hops topo.NextHops, _ int) bool {
		for _, a := range []netip.Addr{far, far4} {
			if mac, ok := hops.Lookup(a); !ok || mac != want {
				return false
			}
		}
		return true
	})
	check("with another link address", true, gateway, gateway4)

	refresh(h.w, far)
	check("no targets", false, near, near4)
	check("gateways", true, gateway, gateway4)
	var next *Watcher
	h.do(func() (err error) {
		next, err = Watch("eth0", netip.Prefix{}, quiet)
		return err
	})
	t.Cleanup(next.Close)
	refresh(h.w, near)
	refresh(next)
	check("of the process before", false, near)

	theirs, fixed := netip.MustParseAddr("2001:db8:1::77"), netip.MustParseAddr("192.0.2.77")
	h.do(func() error {
		err := netlink.NeighSet(&netlink.Neigh{LinkIndex: h.w.dev.Index, Family: netlink.FAMILY_V6, IP: theirs.AsSlice(), HardwareAddr: want[:], State: netlink.NUD_REACHABLE, Flags: netlink.NTF_EXT_LEARNED})
		if err == nil {
			err = netlink.NeighSet(&netlink.Neigh{LinkIndex: h.w.dev.Index, Family: netlink.FAMILY_V4, IP: fixed.AsSlice(), HardwareAddr: want[:], State: netlink.NUD_PERMANENT})
		}
		return err
	})
	for _, targets := range [][]netip.Addr{{theirs, fixed}, nil} {
		refresh(next, targets...)
		e := h.entries(theirs, fixed)
		if e[0].flags&netlink.NTF_EXT_LEARNED == 0 || e[0].owner == owner {
			t.Errorf("another program's became %+v", e[0])
		}
		if e[1].state != netlink.NUD_PERMANENT || e[1].owner == owner {
			t.Errorf("a permanent one became %+v", e[1])
		}
	}
}
