package testbed

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
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

func behind(t *testing.T, b *Bed, server *Node, kind Kind) *Node {
	t.Helper()
	app, err := b.Behind(server, kind)
	if err != nil {
		t.Fatal(err)
	}
	return app
}

// deliver routes both VIPs by way of a node's address on a server's link, as
// if an agent had delivered there.
func deliver(t *testing.T, b *Bed, server, to *Node) {
	t.Helper()
	err := b.Router.Do(func() error {
		link, err := netlink.LinkByName(server.Link)
		for _, vip := range vips() {
			if err != nil {
				break
			}
			err = netlink.RouteReplace(&netlink.Route{Dst: ipNet(vip), LinkIndex: link.Attrs().Index, Gw: to.towards(vip).AsSlice()})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestBehind(t *testing.T) {
	b := up(t, Config{Servers: 3})
	routed, shared := behind(t, b, b.Servers[0], RoutedVeth), behind(t, b, b.Servers[2], Macvlan)
	for _, c := range []struct{ server, app, by *Node }{
		{b.Servers[0], routed, b.Servers[0]},
		{b.Servers[2], shared, shared},
	} {
		deliver(t, b, c.server, c.by)
		for _, vip := range vips() {
			connect(t, b.Client, c.app, vip.Addr())
			if l, err := c.server.Listen("tcp", netip.AddrPortFrom(vip.Addr(), Port).String()); !errors.Is(err, unix.EADDRNOTAVAIL) {
				t.Errorf("%s still has %s (%v)", c.server.Name, vip.Addr(), err)
				l.Close()
			}
		}
		connect(t, c.app, b.Client, b.ClientAddrs[0])
		if err := start(t, c.app, "true").Wait(); err != nil {
			t.Errorf("a program in %s: %v", c.app.Name, err)
		}
		if _, err := b.Behind(c.server, Macvlan); err == nil {
			t.Errorf("two applications behind %s", c.server.Name)
		}
	}
	connect(t, b.Servers[1], shared, shared.Addr)
	connect(t, b.Servers[1], shared, shared.Addr4)
	deliver(t, b, b.Servers[1], b.Servers[1]) // others keep their VIP
	connect(t, b.Client, b.Servers[1], b.VIP)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t)
}

// A frame for the application's MAC is the application's, whatever its IP.
func TestMAC(t *testing.T) {
	b := up(t, Config{Servers: 1})
	server := b.Servers[0]
	own, err := server.MAC()
	if err != nil {
		t.Fatal(err)
	}
	app := behind(t, b, server, Macvlan)
	mac, err := app.MAC()
	if err != nil || len(mac) != 6 || bytes.Equal(mac, own) {
		t.Fatalf("MAC %v of the application, %v of the server (%v)", mac, own, err)
	}
	err = b.Router.Do(func() error { // a neighbour that does not exist but for its MAC
		link, err := netlink.LinkByName(server.Link)
		if err != nil {
			return err
		}
		ghost := host(linkNet(serverSerial+1), 99).AsSlice()
		index := link.Attrs().Index
		return errors.Join(
			netlink.NeighAdd(&netlink.Neigh{LinkIndex: index, IP: ghost, HardwareAddr: mac, State: netlink.NUD_PERMANENT}),
			netlink.RouteReplace(&netlink.Route{Dst: ipNet(vips()[0]), LinkIndex: index, Gw: ghost}))
	})
	if err != nil {
		t.Fatal(err)
	}
	connect(t, b.Client, app, b.VIP)
}

func TestApplicationDiesWithItsServer(t *testing.T) {
	b := up(t, Config{Servers: 2})
	for i, kind := range []Kind{RoutedVeth, Macvlan} {
		server := b.Servers[i]
		app := behind(t, b, server, kind)
		p := start(t, app, "sleep", "1000")
		pin(t, app)
		if err := b.Kill(app); err == nil {
			t.Errorf("killed an application as if it were a host")
		}
		kill(t, b, server)
		wantGone(t, p.Pid())
		for _, path := range []string{app.Path(), app.Pin()} {
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left (%v)", path, err)
			}
		}
		if _, err := b.Behind(server, kind); err == nil {
			t.Error("an application behind the dead")
		}
		revive(t, b, server)
		deliver(t, b, server, server)
		connect(t, b.Client, server, b.VIP) // has its VIPs again
		behind(t, b, server, kind)
	}
	if _, err := b.Behind(b.LBs[0], Macvlan); err == nil {
		t.Error("an application behind an LB")
	}
}
