package dataplane

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/policy"
	"proffer/topo"
)

// TestSignalsOnTheWire: the programs at work on a link. The kernel's own SYN-ACK
// leaves in its signal, and whoever completes its checksum finds the right place.
func TestSignalsOnTheWire(t *testing.T) {
	for _, c := range []struct {
		wire   topo.Wire
		client string
		vip    netip.Addr
	}{
		{topo.Encap, "2001:db8:c::9", vipAddr},
		{topo.Encap, "192.0.2.9", vip4},
		{topo.Insert, "2001:db8:c::9", vipAddr},
	} {
		t.Run(fmt.Sprint(c.wire, " ", c.client), func(t *testing.T) {
			r := newAgentRig(t, hits{}, offering(huntPort, func(o *topo.Offering) { o.VIP.Addr = c.vip }))
			if err := r.Attach(); err != nil {
				t.Fatal(err)
			}
			p := inward(huntPort, syn)
			p.src = netip.AddrPortFrom(netip.MustParseAddr(c.client), clientPort)
			p.dst = netip.AddrPortFrom(c.vip, huntPort)
			listenAt(t, p.dst, 128)
			neighbour(t, p.src.Addr())
			offer := to(p, policy.Generation(p.seq), 0xcf)
			if c.wire == topo.Insert {
				offer = offer.inserted()
			}
			checkSignal(t, exchange(t, offer.frame()), p, c.wire)
		})
	}
}

// neighbour makes an address one beyond the link.
func neighbour(t testing.TB, a netip.Addr) {
	t.Helper()
	dev := linkIndex(t, device)
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: dev, Dst: netlink.NewIPNet(a.AsSlice())}); err != nil {
		t.Fatal(err)
	}
	family := unix.AF_INET6
	if a.Is4() {
		family = unix.AF_INET
	}
	err := netlink.NeighSet(&netlink.Neigh{
		LinkIndex: dev, IP: a.AsSlice(), HardwareAddr: routerMAC[:], State: netlink.NUD_PERMANENT, Family: family,
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
		if n < header+atUpper+40 || got[atDst] != 0xfd { // the LB's block
			continue
		}
		if buffer[0]&needsChecksum != 0 {
			start := binary.NativeEndian.Uint16(buffer[6:])
			at := start + binary.NativeEndian.Uint16(buffer[8:])
			binary.BigEndian.PutUint16(got[at:], sum16(got[start:]))
		}
		return got
	}
}

// checkSignal checks the header of a cs and the checksum of the SYN-ACK inside.
func checkSignal(t *testing.T, got []byte, p packet, wire topo.Wire) {
	t.Helper()
	lb := sid(lbLocator, create, policy.Generation(p.seq))
	if dst := netip.AddrFrom16([16]byte(got[atDst:])); dst != lb {
		t.Errorf("to %v, want %v", dst, lb)
	}
	l4 := atUpper + 40
	switch {
	case wire == topo.Insert:
		want := srh(6, 1, 2, p.src.Addr(), lb, own(serverLocator(here)))
		if header := got[atUpper : atUpper+56]; !slices.Equal(header, want) {
			t.Errorf("header\n got %x\nwant %x", header, want)
		}
		l4 = atUpper + 56
	case p.src.Addr().Is4():
		l4 = atUpper + 20
	}
	tcp := slices.Clone(got[l4:])
	if tcp[13] != syn|ack {
		t.Fatalf("no SYN-ACK inside: %x", got)
	}
	sent := binary.BigEndian.Uint16(tcp[16:])
	tcp[16], tcp[17] = 0, 0
	if want := checksum(p.dst.Addr(), p.src.Addr(), 6, tcp); sent != want {
		t.Errorf("checksum %04x, want %04x", sent, want)
	}
}
