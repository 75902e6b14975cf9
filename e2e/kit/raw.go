package kit

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/lab/testbed"
	"proffer/wire"
)

// Unused is a client address that no socket has: a host that gets an answer there does
// not send a RST.
var Unused = netip.MustParseAddr("2001:db8:c::ff00")

// BareSYN is a SYN from the unused address, as an IPv6 packet.
func BareSYN(bed *testbed.Bed, port, seq int, class uint8) []byte {
	t := wire.TCP{From: uint16(port), To: testbed.Port, Seq: uint32(seq), Flags: wire.SYN}
	return wire.IP{Source: Unused, Destination: bed.VIP, Class: class, HopLimit: wire.DefaultHopLimit}.TCP(t, nil)
}

// SendRaw puts packets on the client's link as they are.
func SendRaw(t *testing.T, bed *testbed.Bed, packets ...[]byte) {
	t.Helper()
	router := routerMAC(t, bed)
	err := bed.Client.Do(func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		defer unix.Close(fd)
		for _, p := range packets {
			f := slices.Concat(router, eth0.HardwareAddr, []byte{0x86, 0xdd}, p)
			if err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: eth0.Index}); err != nil {
				return fmt.Errorf("send: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// routerMAC is the router's on the client's link.
func routerMAC(t *testing.T, bed *testbed.Bed) (mac net.HardwareAddr) {
	t.Helper()
	err := bed.Router.Do(func() error {
		link, err := netlink.LinkByName(bed.Client.Link)
		if err == nil {
			mac = link.Attrs().HardwareAddr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

// OffersIn returns the lists of the offers that left the LB, by the client's
// port, in order.
func (w *Recorded) OffersIn() map[uint16][][]netip.Addr {
	lists := map[uint16][][]netip.Addr{}
	for _, f := range w.On(w.Bed.LBs[0], false) {
		if f.Encapsulated() && f.TCP.flags == wire.SYN {
			port := f.TCP.From.Port()
			lists[port] = append(lists[port], f.way())
		}
	}
	return lists
}

// TCPBetween is a segment without data.
func TCPBetween(from, to netip.AddrPort, t wire.TCP) []byte {
	t.From, t.To = from.Port(), to.Port()
	return wire.IP{Source: from.Addr(), Destination: to.Addr(), HopLimit: wire.DefaultHopLimit}.TCP(t, nil)
}

const (
	Connections = 200
	// Class is the traffic class of every second connection: DSCP EF; the
	// kernel adds the ECN bits of a connection that uses ECN (RFC 3168).
	Class = 46 << 2
)

// SetSysctl sets a value below /proc/sys in a node.
func SetSysctl(t *testing.T, n *testbed.Node, path, value string) {
	t.Helper()
	err := n.Do(func() error { return os.WriteFile("/proc/sys/"+path, []byte(value), 0o644) })
	if err != nil {
		t.Fatalf("set %s on %s: %v", path, n.Name, err)
	}
}
