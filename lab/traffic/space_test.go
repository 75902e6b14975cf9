package traffic

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/lab/traffic/raw"
)

// space is a network namespace without a name: it ends with its descriptor.
type space struct {
	t  testing.TB
	ns *os.File
}

func newSpace(t testing.TB) *space {
	t.Helper()
	s := &space{t: t}
	unshare := func() error { return unix.Unshare(unix.CLONE_NEWNET) }
	err := raw.Inside(unshare, func() (err error) {
		// Until its link-local address is proven unique, a link asks no neighbour.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0); err != nil {
			return err
		}
		s.ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.ns.Close() })
	return s
}

func (s *space) enter() error { return unix.Setns(int(s.ns.Fd()), unix.CLONE_NEWNET) }

func (s *space) do(f func() error) {
	s.t.Helper()
	if err := raw.Inside(s.enter, f); err != nil {
		s.t.Fatal(err)
	}
}

// What is at the two ends of a cable: a client with many addresses, and a server
// with one service on its loopback. Either has its default route to the other.
const (
	device  = "eth0"
	vip     = "[2001:db8:f::1]:7"
	vip4    = "203.0.113.1:7"
	clients = 10 // 2001:db8:2::100 and 192.0.2.100 and up, behind the link
)

func linked(t testing.TB) (client, server *space) {
	t.Helper()
	client, server = newSpace(t), newSpace(t)
	client.do(func() error {
		cable := netlink.NewVeth(netlink.LinkAttrs{Name: device, MTU: 1500, TxQLen: -1})
		cable.PeerName, cable.PeerNamespace = device, netlink.NsFd(server.ns.Fd())
		return netlink.LinkAdd(cable)
	})
	for _, s := range []*space{client, server} {
		s.up("lo")
		s.up(device)
	}
	for _, s := range []*space{client, server} {
		s.settle()
	}
	client.address(device, "2001:db8:1::1/64", "10.0.0.1/24")
	for i := range clients {
		client.address("lo", "2001:db8:2::"+strconv.Itoa(100+i)+"/128", "192.0.2."+strconv.Itoa(100+i)+"/32")
	}
	server.address(device, "2001:db8:1::2/64", "10.0.0.2/24")
	server.address("lo", "2001:db8:f::1/128", "2001:db8:f::2/128", "203.0.113.1/32")
	client.routeBy("2001:db8:1::2", "10.0.0.2")
	server.routeBy("2001:db8:1::1", "10.0.0.1")
	for _, s := range []*space{client, server} { // packets that wait for a neighbour are few, the others lost
		for _, to := range []string{"2001:db8:9::1", "198.51.100.1"} {
			var err error
			for range 3 {
				if _, err = raw.Ethernet(s.enter, device, netip.MustParseAddr(to)); err == nil {
					break
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return client, server
}

func (s *space) up(name string) {
	s.t.Helper()
	s.do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
}

// settle waits until the kernel has seen the other end come up, which it does
// once a second only: until then no IPv6 address works.
func (s *space) settle() {
	s.t.Helper()
	for range 500 {
		ready := false
		s.do(func() error {
			link, err := netlink.LinkByName(device)
			ready = err == nil && link.Attrs().OperState == netlink.OperUp
			return err
		})
		if ready {
			return
		}
		time.Sleep(10 * ms)
	}
	s.t.Fatal("the cable does not come up")
}

func (s *space) address(name string, addresses ...string) {
	s.t.Helper()
	s.do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, text := range addresses {
			addr, err := netlink.ParseAddr(text)
			if err != nil {
				return err
			}
			addr.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(link, addr); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *space) routeBy(gateways ...string) {
	s.t.Helper()
	s.do(func() error {
		for _, g := range gateways {
			if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(g)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// listen opens one of several listeners on an address.
func (s *space) listen(addr string) (l net.Listener) {
	s.t.Helper()
	s.do(func() error {
		l = listenTogether(s.t, netip.MustParseAddrPort(addr))
		return nil
	})
	return l
}

// from returns n clients of the family of addr.
func from(addr string, n int) []netip.AddrPort {
	base := "2001:db8:2::"
	if netip.MustParseAddrPort(addr).Addr().Is4() {
		base = "192.0.2."
	}
	ends := make([]netip.AddrPort, n)
	for i := range ends {
		client := netip.MustParseAddr(base + strconv.Itoa(100+i%clients))
		ends[i] = netip.AddrPortFrom(client, uint16(10_000+i/clients))
	}
	return ends
}

const ms = time.Millisecond
