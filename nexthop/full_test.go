//go:build guest

package nexthop

import (
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"proffer/topo"
)

// TestHeldInAFullTable: where the kernel's tables of neighbours are full, in either family, those that are
// held stay, and others give way. The limits are those of the whole kernel, so the test has one of its own: in
// e2e/guests TestFullNeighbours builds it with this tag, and runs it in a guest.
func TestHeldInAFullTable(t *testing.T) {
	const room = 32
	h := newDual(t)
	others := []netip.Addr{netip.MustParseAddr("2001:db8:1::88"), netip.MustParseAddr("192.0.2.88")}
	h.router.address("port0", others[0].String()+"/64", others[1].String()+"/24")
	h.knownToRouter()
	held := []netip.Addr{near, near4, gateway, gateway4}
	h.changed("all are known", func() error {
		for _, a := range others {
			if err := h.w.Resolve(a); err != nil {
				return err
			}
		}
		return h.w.Refresh([]netip.Addr{near, near4, far, far4})
	}, func(hops topo.NextHops, waiting int) bool {
		return waiting == 0 && h.at(hops, near) && h.at(hops, near4) && h.at(hops, others[0]) && h.at(hops, others[1])
	})
	for _, family := range []string{"ipv4", "ipv6"} {
		for n, value := range []int{room / 4, room / 2, room} {
			must(t, os.WriteFile(fmt.Sprintf("/proc/sys/net/%s/neigh/default/gc_thresh%d", family, n+1), []byte(fmt.Sprint(value)), 0))
		}
		h.do(func() error {
			return os.WriteFile("/proc/sys/net/"+family+"/neigh/eth0/base_reachable_time_ms", []byte("1000"), 0)
		})
	}
	usable := func(a netip.Addr) bool {
		return h.entries(a)[0].state&(netlink.NUD_REACHABLE|netlink.NUD_STALE|netlink.NUD_DELAY|netlink.NUD_PROBE) != 0
	}
	gone := map[netip.Addr]bool{}
	late := time.Now().Add(time.Minute)
	for i := 0; len(gone) < len(others); i++ { // strangers, until the kernel takes the others' places
		if time.Now().After(late) {
			t.Fatalf("of %v only %v gave way in a minute: the tables are not full", others, gone)
		}
		for k := range 8 {
			n := (i*8 + k) % 100
			for _, a := range []string{fmt.Sprintf("2001:db8:1::7:%x", i*8+k+1), fmt.Sprintf("192.0.2.%d", 100+n)} {
				h.do(func() error { _ = h.w.Resolve(netip.MustParseAddr(a)); return nil }) // refused where nothing gives way
			}
		}
		for _, a := range others {
			if !usable(a) {
				gone[a] = true
			}
		}
		for _, a := range held {
			if !usable(a) {
				t.Fatalf("%s, which is held, is gone: %+v", a, h.entries(a)[0])
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Logf("gave way: %v", gone)
}

// knownToRouter gives the router permanent neighbours for the host: both are of one kernel, so in a full table
// the router would not find the host, and could not answer it.
func (h *host) knownToRouter() {
	h.t.Helper()
	eth0 := h.link("eth0")
	var addrs []netlink.Addr
	h.do(func() (err error) {
		addrs, err = netlink.AddrList(eth0, netlink.FAMILY_ALL)
		return err
	})
	if len(addrs) < 3 {
		h.t.Fatalf("the host has %v: want an address of IPv4, of IPv6 and of the link", addrs)
	}
	port0 := h.router.link("port0").Attrs().Index
	for _, a := range addrs {
		n := netlink.Neigh{LinkIndex: port0, State: netlink.NUD_PERMANENT, IP: a.IP, HardwareAddr: eth0.Attrs().HardwareAddr}
		h.router.do(func() error { return netlink.NeighSet(&n) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
