package testbed

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// askARP asks on the router's end of a server's link for the owner of an address, and
// reports whether an error comes before the answer to the next question.
func askARP(t *testing.T, b *Bed, server *Node, target, known netip.Addr) bool {
	t.Helper()
	answered := false
	err := b.Router.Do(func() error {
		fd, err := tap(server.Link)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		dev, err := net.InterfaceByName(server.Link)
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{target, known} {
			if _, err := unix.Write(fd, arpRequest(dev.HardwareAddr, server.gateway4, a)); err != nil {
				return err
			}
		}
		for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
			awaitReadable(fd, deadline)
			frame := make([]byte, maxFrame)
			if n, err := unix.Read(fd, frame); err != nil || n < 42 || frame[12] != 8 || frame[13] != 6 || frame[21] != 2 {
				continue // no ARP reply
			}
			switch netip.AddrFrom4([4]byte(frame[28:32])) {
			case target:
				answered = true
			case known:
				return nil
			}
		}
		return errors.New("not even the known address was answered for")
	})
	if err != nil {
		t.Fatal(err)
	}
	return answered
}

func arpRequest(mac net.HardwareAddr, from, target netip.Addr) []byte {
	const asks = 1
	return slices.Concat(
		[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac, []byte{8, 6},
		[]byte{0, 1, 8, 0, 6, 4, 0, asks}, mac, from.AsSlice(), make([]byte, 6), target.AsSlice())
}

func TestServersKeepTheirVIPToThemselves(t *testing.T) {
	b := up(t, Config{Servers: 2})
	if _, err := b.Behind(b.Servers[1], Macvlan); err != nil {
		t.Fatal(err)
	}
	for _, s := range b.Servers {
		if askARP(t, b, s, b.VIP4, s.Addr4) {
			t.Errorf("%s answers ARP for the VIP", s.Name)
		}
	}
}

// A server offers what its link carries and knows of no encapsulation: to leave
// room for that is the load balancer's work.
func TestServersOfferTheWholeMTU(t *testing.T) {
	const timestamps = 12 // bytes of each segment (RFC 7323)
	b := up(t, Config{Servers: 2})
	app, err := b.Behind(b.Servers[1], Macvlan)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*Node{b.Servers[0], app} {
		wantMSS(t, b.Client, n, n.Addr, MTU-40-20-timestamps)
		wantMSS(t, b.Client, n, n.Addr4, MTU-20-20-timestamps)
	}
}

func wantMSS(t *testing.T, from, to *Node, addr netip.Addr, want uint32) {
	t.Helper()
	l, err := to.Listen("tcp", netip.AddrPortFrom(addr, Port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	control(t, dial(t, from, "tcp", addr), func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && info.Snd_mss != want {
			t.Errorf("a segment to %s at %s has %d bytes, want %d", to.Name, addr, info.Snd_mss, want)
		}
		return err
	})
}
