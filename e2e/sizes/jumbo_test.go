package sizes

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

const jumbo = 9000

// widen gives every link of a bed this MTU, at both ends.
func widen(t *testing.T, bed *testbed.Bed, mtu int) {
	t.Helper()
	set := func(n *testbed.Node, link string) {
		err := n.Do(func() error {
			l, err := netlink.LinkByName(link)
			if err != nil {
				return err
			}
			return netlink.LinkSetMTU(l, mtu)
		})
		if err != nil {
			t.Fatalf("MTU of %s in %s: %v", link, n.Name, err)
		}
	}
	for _, n := range bed.Nodes() {
		set(n, "eth0")
		set(bed.Router, n.Link)
	}
}

// TestJumboFramesNative: docs/failures.md, jumbo frames: links of 9,000 bytes keep XDP in the
// driver, and streams of such segments go through both ways.
func TestJumboFramesNative(t *testing.T) {
	const streams, size = 3, 20_000_000
	bed := kit.Up(t, testbed.Config{Servers: 3})
	widen(t, bed, jumbo)
	kit.Bulks(t, bed, bed.Servers...)
	first := 20000
	for _, vip := range []netip.Addr{bed.VIP, bed.VIP4} {
		t.Run(vip.String(), func(t *testing.T) {
			s := kit.Settings(t, "hunt:static:1")
			kit.FamilyOf(&s, vip)
			farm := kit.Start(t, bed, s)
			for _, n := range slices.Concat(bed.LBs, bed.Servers) {
				if now := kit.Status(t, farm, n); now.XDP != "native" {
					t.Errorf("XDP of %s is %s", n.Name, now.XDP)
				}
			}
			first += streams
			up := kit.Begin(t, bed, vip, true, first, streams)
			kit.Move(t, "upwards", up, size)
			kit.Finish(t, "upwards", up)
			sent := uint64(0)
			for _, n := range up.Bytes() {
				sent += uint64(n)
			}
			if n := kit.Counter(t, farm, "steer", bed.LBs[0]); n < sent/jumbo || n > sent/(jumbo/3) {
				t.Errorf("%d bytes went upwards in %d packets", sent, n)
			}
			down := kit.Begin(t, bed, vip, false, 10000+first, streams)
			kit.Move(t, "downwards", down, size)
			kit.Finish(t, "downwards", down)
			kit.WantNoStray(t, farm)
		})
	}
}
