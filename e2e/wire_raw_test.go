package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/lab/testbed"
	"proffer/wire"
)

// unused is a client address that no socket has: a host that gets an answer there does
// not send a RST.
var unused = netip.MustParseAddr("2001:db8:c::ff00")

// bareSYN is a SYN from the unused address, as an IPv6 packet.
func bareSYN(bed *testbed.Bed, port, seq int, class uint8) []byte {
	t := wire.TCP{From: uint16(port), To: testbed.Port, Seq: uint32(seq), Flags: wire.SYN}
	return wire.IP{Source: unused, Destination: bed.VIP, Class: class, HopLimit: wire.DefaultHopLimit}.TCP(t, nil)
}

// sendRaw puts packets on the client's link as they are.
func sendRaw(t *testing.T, bed *testbed.Bed, packets ...[]byte) {
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

// offersIn returns the lists of the offers that left the LB, by the client's
// port, in order.
func (w *recorded) offersIn() map[uint16][][]netip.Addr {
	lists := map[uint16][][]netip.Addr{}
	for _, f := range w.on(w.bed.LBs[0], false) {
		if f.encapsulated() && f.tcp.flags == wire.SYN {
			port := f.tcp.from.Port()
			lists[port] = append(lists[port], f.way())
		}
	}
	return lists
}

// TestSameList: a SYN that comes again meets the same list, whether the LB
// remembers the first one's or not: that a server which has the connection
// already is asked first changes the order, never the members.
func TestSameList(t *testing.T) {
	const flows, choices, first = 32, 3, 40000
	bed := up(t, testbed.Config{Servers: 6})
	serve(t, bed)
	s := settings(t, "hunt:static:0")
	s.Choices = choices
	farm := start(t, bed, s)
	lb := bed.LBs[0]
	for _, n := range bed.Servers { // none repeats its answer, from which a new LB would learn
		setSysctl(t, n, "net/ipv4/tcp_synack_retries", "0")
	}
	var syns [][]byte
	for i := range flows {
		syns = append(syns, bareSYN(bed, first+i, 1000*i, 0))
	}

	c := record(t, bed)
	sendRaw(t, bed, syns...)
	eventually(t, "all offers are taken", func() bool { return counter(t, farm, "stickiness_created", lb) == flows })
	sendRaw(t, bed, syns...)
	eventually(t, "all offers are made again", func() bool { return counter(t, farm, "offer_again", lb) == flows })
	forget(t, farm.Daemon(lb))
	restart(t, bed, lb, "lb")
	sendRaw(t, bed, syns...)
	eventually(t, "a new LB makes all offers", func() bool { return counter(t, farm, "offer", lb) == flows })
	w := recorded{bed, c.stop(t)}

	distinct := map[string]bool{}
	lists := w.offersIn()
	for i := range flows {
		got := lists[uint16(first+i)]
		if len(got) != 3 {
			t.Fatalf("%d offers for 3 SYNs of one flow", len(got))
		}
		distinct[fmt.Sprint(got[0])] = true
		if !slices.Equal(got[0], got[2]) {
			t.Errorf("another LB without memory offers to %v, want %v", got[2], got[0])
		}
		want := members(got[0])
		want = append([]netip.Prefix{want[choices-1]}, want[:choices-1]...) // the last one has it
		if again := members(got[1]); !slices.Equal(again, want) {
			t.Errorf("the SYN came again and was offered to %v, want %v", again, want)
		}
	}
	if len(distinct) < flows/2 { // of 120 lists
		t.Errorf("%d flows met %d lists", flows, len(distinct))
	}
}

func members(way []netip.Addr) []netip.Prefix {
	var servers []netip.Prefix
	for _, sid := range way {
		servers = append(servers, locator(sid))
	}
	return servers
}

// TestTrafficClass: all 256 classes, those with congestion marks (RFC 3168)
// among them, are outside what they are inside (RFC 6040 §4.1).
func TestTrafficClass(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 3})
	serve(t, bed)
	farm := start(t, bed, settings(t, "hunt:static:4"))
	c := record(t, bed)
	const classes, first = 256, 20000
	var syns [][]byte
	for class := range classes {
		syns = append(syns, bareSYN(bed, first+class, class, uint8(class)))
	}
	sendRaw(t, bed, syns...)
	eventually(t, "all are offered", func() bool { return counter(t, farm, "offer", bed.LBs[0]) == classes })
	w := recorded{bed, c.stop(t)}
	pairs := w.forwarded(t)
	if len(pairs) != classes {
		t.Fatalf("%d packets for %d classes", len(pairs), classes)
	}
	for _, p := range pairs {
		want := uint8(p.in.tcp.from.Port() - first)
		if inner, outer := p.out.tcp.header.class, p.out.ip.class; p.in.ip.class != want || inner != want || outer != want {
			t.Errorf("class %#x came as %#x and left as %#x inside, %#x outside", want, p.in.ip.class, inner, outer)
		}
	}
}
