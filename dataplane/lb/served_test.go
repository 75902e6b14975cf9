package lb_test

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"proffer/proof/rig"
	"proffer/wire"
)

// virtual is the link address of a virtual router (RFC 9568 §7.3).
var virtual = net.HardwareAddr{0, 0, 0x5e, 0, 2, 1}

// macvlan makes one above the rig's link.
func macvlan(t *testing.T, change func(*netlink.Macvlan)) netlink.Link {
	t.Helper()
	dev, err := netlink.LinkByName(rig.Device)
	if err != nil {
		t.Fatal(err)
	}
	m := &netlink.Macvlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.MACVLAN_MODE_PRIVATE}
	m.Name, m.ParentIndex, m.HardwareAddr = "vrrp.1", dev.Attrs().Index, virtual
	change(m)
	if err := netlink.LinkAdd(m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestServesMacvlans: frames for the address of a macvlan above the link are taken from when it is up until it is
// gone, with packets of either family and a server's signals; those for a macvlan that is no host's interface are
// not, and their address is named, as is any other that VIPs' packets come for.
func TestServesMacvlans(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 8))
	syn := rig.Inward(rig.HuntPort, wire.SYN)
	to := func(mac net.HardwareAddr, frame []byte) []byte {
		frame = slices.Clone(frame)
		copy(frame, mac)
		return frame
	}
	takes := func(label string, want bool) {
		t.Helper()
		if _, err := r.Follow(); err != nil {
			t.Fatal(err)
		}
		for _, frame := range [][]byte{syn.Frame(), rig.OverIPv4(syn).Frame(), rig.SignalFrom(0, rig.SynAck(rig.HuntPort), wire.CreateStickiness, 5)} {
			out := r.Send(t, to(virtual, frame))
			if took := !slices.Equal(out.Reasons, []string{"pass_other_host"}); took != want {
				t.Errorf("%s: %v, want taken: %v", label, out.Reasons, want)
			}
		}
		if _, err := r.Follow(); err != nil {
			t.Fatal(err)
		}
		if named := strings.Contains(strings.Join(r.Advice(), "\n"), virtual.String()); named == want {
			t.Errorf("%s: the advice names it: %v: %q", label, named, r.Advice())
		}
	}
	takes("no macvlan", false)
	for _, mode := range []netlink.MacvlanMode{netlink.MACVLAN_MODE_PRIVATE, netlink.MACVLAN_MODE_BRIDGE, netlink.MACVLAN_MODE_VEPA} {
		m := macvlan(t, func(m *netlink.Macvlan) { m.Mode = mode })
		takes("down", false)
		if err := netlink.LinkSetUp(m); err != nil {
			t.Fatal(err)
		}
		takes("up", true)
		if err := netlink.LinkDel(m); err != nil {
			t.Fatal(err)
		}
		takes("gone", false)
	}
	source := macvlan(t, func(m *netlink.Macvlan) { m.Mode = netlink.MACVLAN_MODE_SOURCE })
	if err := netlink.LinkSetUp(source); err != nil {
		t.Fatal(err)
	}
	takes("by the sender", false)
	if err := netlink.LinkDel(source); err != nil {
		t.Fatal(err)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
	bridge.Name = "br0"
	port := macvlan(t, func(*netlink.Macvlan) {})
	for _, err := range []error{netlink.LinkSetUp(port), netlink.LinkAdd(bridge), netlink.LinkSetMaster(port, bridge)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	takes("a port of a bridge", false)
	if err := netlink.LinkDel(port); err != nil {
		t.Fatal(err)
	}
	dev, err := netlink.LinkByName(rig.Device)
	if err != nil {
		t.Fatal(err)
	}
	tap := &netlink.Macvtap{Macvlan: netlink.Macvlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.MACVLAN_MODE_BRIDGE}}
	tap.Name, tap.ParentIndex, tap.HardwareAddr = "tap0", dev.Attrs().Index, virtual
	for _, err := range []error{netlink.LinkAdd(tap), netlink.LinkSetUp(tap)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	takes("a virtual machine's", false)
}

// TestStrangersAreNamed: of frames for other addresses only those with packets for a VIP, and no groups.
func TestStrangersAreNamed(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 8))
	syn, elsewhere := rig.Inward(rig.HuntPort, wire.SYN).Frame(), rig.Inward(rig.HuntPort, wire.SYN).Frame()
	elsewhere[14+24] ^= 1 << 6 // another destination
	for _, c := range []struct {
		frame []byte
		to    net.HardwareAddr
		named bool
	}{
		{syn, net.HardwareAddr{2, 0, 0, 0, 9, 1}, true}, {elsewhere, net.HardwareAddr{2, 0, 0, 0, 9, 2}, false},
		{syn, net.HardwareAddr{0x33, 0x33, 0, 0, 9, 3}, false}, {syn, net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, false},
	} {
		frame := slices.Clone(c.frame)
		copy(frame, c.to)
		r.Send(t, frame).Is(t, c.to.String(), rig.XDPPass, frame, "pass_other_host")
		if _, err := r.Follow(); err != nil {
			t.Fatal(err)
		}
		if is := strings.Contains(strings.Join(r.Advice(), "\n"), c.to.String()); is != c.named {
			t.Errorf("%v is named: %v, want %v", c.to, is, c.named)
		}
	}
}
