package agent_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestSignalsOnTheWire: the programs at work on a link. The kernel's own SYN-ACK
// leaves in its signal, and its checksum is completed in the right place.
func TestSignalsOnTheWire(t *testing.T) {
	for _, c := range []struct {
		wire   topo.Wire
		client string
		vip    netip.Addr
	}{
		{topo.Encap, "2001:db8:c::9", rig.VipAddr},
		{topo.Encap, "192.0.2.9", rig.Vip4},
		{topo.Insert, "2001:db8:c::9", rig.VipAddr},
	} {
		t.Run(fmt.Sprint(c.wire, " ", c.client), func(t *testing.T) {
			r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.VIP.Addr, o.Wire = c.vip, c.wire }))
			if err := r.Attach(); err != nil {
				t.Fatal(err)
			}
			p := rig.Inward(rig.HuntPort, wire.SYN)
			p.Src = netip.AddrPortFrom(netip.MustParseAddr(c.client), rig.ClientPort)
			p.Dst = netip.AddrPortFrom(c.vip, rig.HuntPort)
			listenAt(t, p.Dst, 128)
			neighbour(t, p.Src.Addr())
			offer := rig.To(p, wire.Generation(p.Seq), wire.ConnectForce)
			if c.wire == topo.Insert {
				offer = offer.Inserted()
			}
			checkSignal(t, exchange(t, offer.Frame()), p, c.wire)
		})
	}
}

// neighbour makes an address one beyond the link.
func neighbour(t testing.TB, a netip.Addr) {
	t.Helper()
	dev := rig.LinkIndex(t, rig.Device)
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: dev, Dst: netlink.NewIPNet(a.AsSlice())}); err != nil {
		t.Fatal(err)
	}
	family := unix.AF_INET6
	if a.Is4() {
		family = unix.AF_INET
	}
	err := netlink.NeighSet(&netlink.Neigh{
		LinkIndex: dev, IP: a.AsSlice(), HardwareAddr: rig.RouterMAC[:], State: netlink.NUD_PERMANENT, Family: family,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// exchange sends a frame over the wire and returns the first signal that comes
// back, its checksum completed as the sending link asked for (struct
// virtio_net_hdr of linux/virtio_net.h).
func exchange(t testing.TB, frame []byte) []byte {
	t.Helper()
	const header, needsChecksum = 10, 1
	fd := tap(t, unix.ETH_P_IPV6)
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, append(make([]byte, header), frame...)); err != nil {
		t.Fatal(err)
	}
	for buffer := make([]byte, 4096); ; {
		n, err := unix.Read(fd, buffer)
		if err != nil {
			t.Fatalf("wait for the signal: %v", err)
		}
		got := slices.Clone(buffer[header:n])
		if n < header+rig.AtUpper+40 || got[rig.AtDst] != 0xfd { // the LB's block
			continue
		}
		if buffer[0]&needsChecksum != 0 {
			start := binary.NativeEndian.Uint16(buffer[6:])
			at := start + binary.NativeEndian.Uint16(buffer[8:])
			binary.BigEndian.PutUint16(got[at:], wire.Checksum(got[start:]))
		}
		return got
	}
}

// checkSignal checks the header of a cs and the checksum of the SYN-ACK inside.
func checkSignal(t *testing.T, got []byte, p rig.Packet, by topo.Wire) {
	t.Helper()
	lb := rig.SID(rig.LbLocator, wire.CreateStickiness, wire.Generation(p.Seq))
	if dst := netip.AddrFrom16([16]byte(got[rig.AtDst:])); dst != lb {
		t.Errorf("to %v, want %v", dst, lb)
	}
	l4 := rig.AtUpper + 40
	switch {
	case by == topo.Insert:
		want := wire.SRH(wire.ProtoTCP, 1, wire.Untagged(rig.ServerLocator(rig.Here), p.Flow()), lb, p.Src.Addr())
		if header := got[rig.AtUpper : rig.AtUpper+56]; !slices.Equal(header, want) {
			t.Errorf("header\n got %x\nwant %x", header, want)
		}
		l4 = rig.AtUpper + 56
	case p.Src.Addr().Is4():
		l4 = rig.AtUpper + 20
	}
	tcp := slices.Clone(got[l4:])
	if tcp[13] != wire.SYN|wire.ACK {
		t.Fatalf("no SYN-ACK inside: %x", got)
	}
	sent := binary.BigEndian.Uint16(tcp[16:])
	tcp[16], tcp[17] = 0, 0
	if want := (wire.IP{Source: p.Dst.Addr(), Destination: p.Src.Addr()}).Checksum(wire.ProtoTCP, tcp); sent != want {
		t.Errorf("checksum %04x, want %04x", sent, want)
	}
}

// TestFollowsLink: a packet is passed on from the link's address of now.
func TestFollowsLink(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
	dev, err := netlink.LinkByName(rig.Device)
	if err != nil {
		t.Fatal(err)
	}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 0x77}
	if err := netlink.LinkSetHardwareAddr(dev, mac); err != nil {
		t.Fatal(err)
	}
	if changed, err := r.Follow(); err != nil || changed == "" {
		t.Fatalf("it followed %q, %v", changed, err)
	}
	p := rig.Inward(rig.HuntPort, wire.SYN) // without a listener
	frame := rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce).Frame()
	copy(frame, mac)
	if out := r.Send(t, frame); out.Action != rig.XDPTX || !slices.Equal(out.Frame[6:12], mac) {
		t.Errorf("passed on from %x for %v, want %x", out.Frame[6:12], out.Reasons, []byte(mac))
	}
}

// TestServesMacvlan: frames for the address of a macvlan above the link are taken, and the packet inside is the
// link's own; before, the address is named.
func TestServesMacvlan(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
	dev, err := netlink.LinkByName(rig.Device)
	if err != nil {
		t.Fatal(err)
	}
	m := &netlink.Macvlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.MACVLAN_MODE_PRIVATE}
	m.Name, m.ParentIndex, m.HardwareAddr = "vrrp.1", dev.Attrs().Index, net.HardwareAddr{0, 0, 0x5e, 0, 2, 1}
	p := rig.Inward(rig.HuntPort, wire.SYN)
	frame := rig.To(p, wire.Generation(p.Seq), wire.ConnectForce).Frame()
	copy(frame, m.HardwareAddr)
	r.Send(t, frame).Is(t, "no macvlan", rig.XDPPass, frame, "pass_other_host")
	follow := func() {
		t.Helper()
		if _, err := r.Follow(); err != nil {
			t.Fatal(err)
		}
	}
	follow()
	if all := strings.Join(r.Advice(), " "); !strings.Contains(all, m.HardwareAddr.String()) {
		t.Errorf("advice %q", all)
	}
	listed := &netlink.Neigh{LinkIndex: dev.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT, HardwareAddr: m.HardwareAddr}
	if err := netlink.NeighAppend(listed); err != nil {
		t.Fatal(err)
	}
	follow()
	r.Send(t, frame).Is(t, "let in, which the kernel takes no frame for", rig.XDPPass, frame, "pass_other_host")
	for _, err := range []error{netlink.NeighDel(listed), netlink.LinkAdd(m), netlink.LinkSetUp(m)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	follow()
	if out := r.Send(t, frame); slices.Equal(out.Reasons, []string{"pass_other_host"}) {
		t.Errorf("a macvlan's: %v", out.Reasons)
	}
	if all := strings.Join(r.Advice(), " "); strings.Contains(all, m.HardwareAddr.String()) {
		t.Errorf("advice about a macvlan's: %q", all)
	}
}
