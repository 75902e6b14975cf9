package sizes

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
	"proffer/topo"
)

// TestPing: both VIPs answer echo requests, as in a search for a fault.
func TestPing(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	s := kit.Settings(t, "hunt:static:4")
	s.LB = func(lb *topo.LB) {
		four := lb.Services[0]
		four.Name, four.VIP.Addr = "web4", bed.VIP4
		lb.Services = append(lb.Services, four)
	}
	farm := kit.Start(t, bed, s)
	const requests = 3
	kit.SetSysctl(t, bed.Client, "net/ipv4/ping_group_range", "0 0")
	pings := uint64(0)
	for _, vip := range []netip.Addr{bed.VIP, bed.VIP4} {
		for _, size := range []int{0, 56, 1000, 1450} {
			c := pinger(t, bed, vip)
			for seq := range requests {
				ping(t, c, vip, seq, size)
				pings++
			}
		}
	}
	if n := kit.Counter(t, farm, "echo_reply", bed.LBs[0]); n != pings {
		t.Errorf("the LB answered %d of %d", n, pings)
	}
}

// pinger is a socket of ping's kind (icmp(7)): the kernel has verified the
// checksum of what comes out of it, and that it answers this socket.
func pinger(t *testing.T, bed *testbed.Bed, vip netip.Addr) net.Conn {
	t.Helper()
	family, protocol := unix.AF_INET6, unix.IPPROTO_ICMPV6
	var to unix.Sockaddr = &unix.SockaddrInet6{Addr: vip.As16()}
	if vip.Is4() {
		family, protocol, to = unix.AF_INET, unix.IPPROTO_ICMP, &unix.SockaddrInet4{Addr: vip.As4()}
	}
	var c net.Conn
	err := bed.Client.Do(func() error {
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		if err := unix.Connect(fd, to); err != nil {
			unix.Close(fd)
			return err
		}
		c, err = connOf(fd)
		return err
	})
	if err != nil {
		t.Fatalf("open a socket for echo requests: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ping sends one request and wants its bytes back.
func ping(t *testing.T, c net.Conn, vip netip.Addr, seq, size int) {
	t.Helper()
	request, reply := byte(128), byte(129) // RFC 4443 §4
	if vip.Is4() {
		request, reply = 8, 0 // RFC 792
	}
	message := make([]byte, 8+size)
	message[0] = request
	binary.BigEndian.PutUint16(message[6:], uint16(seq))
	for i := range size {
		message[8+i] = byte(seq + i)
	}
	if _, err := c.Write(message); err != nil {
		t.Fatalf("ask %s: %v", vip, err)
	}
	c.SetReadDeadline(time.Now().Add(kit.Patience))
	got := make([]byte, testbed.MTU)
	n, err := c.Read(got)
	if err != nil {
		t.Fatalf("%s does not answer %d bytes: %v", vip, size, err)
	}
	if got[0] != reply || n != len(message) || string(got[6:n]) != string(message[6:]) {
		t.Errorf("%s answers %d bytes of type %d for request %d of %d bytes", vip, n, got[0], seq, len(message))
	}
}

// TestNarrowClient: a server learns how narrow the way to a client is, though
// the word goes to the VIP and so to an LB: one that knows the flow, or one that
// has never heard of it.
func TestNarrowClient(t *testing.T) {
	const size = 5_000_000
	for _, spelt := range []string{testbed.VIP, testbed.VIP4} {
		for _, change := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s LB changes %v", spelt, change), func(t *testing.T) {
				bed := kit.Up(t, testbed.Config{Servers: 4, LBs: 2, ClientMTU: 1300})
				vip := netip.MustParseAddr(spelt)
				let := make(chan struct{})
				for _, n := range bed.Servers {
					sendWhen(t, n, vip, size, let)
				}
				s := kit.Settings(t, "hunt:static:0") // not the first candidate
				kit.FamilyOf(&s, vip)
				farm := kit.Start(t, bed, s)
				now := bed.LBs[0]
				if err := bed.Announce(now); err != nil {
					t.Fatal(err)
				}
				c := asker(t, bed, vip)
				if change {
					now = bed.LBs[1]
					if err := bed.Announce(now); err != nil {
						t.Fatal(err)
					}
				}
				steered := kit.Counter(t, farm, "steer", now)
				close(let)
				c.SetReadDeadline(time.Now().Add(kit.Patience))
				if n, err := io.Copy(io.Discard, c); n != size || err != nil {
					t.Fatalf("downloaded %d of %d bytes: %v", n, size, err)
				}
				asked := kit.Counter(t, farm, "recover", now)
				if change == (asked == 0) || !change && kit.Counter(t, farm, "steer", now) == steered {
					t.Errorf("%s asked for %d packets' owner", now.Name, asked)
				}
			})
		}
	}
}

// sendWhen makes a node answer a byte of each client that connects by so many, but not
// before let is closed.
func sendWhen(t *testing.T, n *testbed.Node, vip netip.Addr, size int64, let <-chan struct{}) {
	t.Helper()
	l, err := n.Listen("tcp", netip.AddrPortFrom(vip, testbed.Port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
					return
				}
				c.Write([]byte{'!'})
				<-let
				io.Copy(c, responder.Bytes(size)) // the client sees what is missing
			}()
		}
	}()
}

// asker opens a connection that has been served once.
func asker(t *testing.T, bed *testbed.Bed, vip netip.Addr) net.Conn {
	t.Helper()
	c, err := bed.Client.DialContext(t.Context(), "tcp", netip.AddrPortFrom(vip, testbed.Port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(kit.Patience))
	if _, err := c.Write([]byte{'?'}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNarrowDomain: on a link inside the domain that is narrower than the LB's
// own, its packets are too big; the word comes to the LB, and the client learns
// what it must do.
func TestNarrowDomain(t *testing.T) {
	const mtu, streams, size = 1400, 2, 3_000_000
	for _, c := range []struct{ policy, vip string }{
		{"hunt:static:4", testbed.VIP}, {"hunt:static:4", testbed.VIP4},
		{"single", testbed.VIP}, {"single", testbed.VIP4},
	} {
		t.Run(c.policy+" "+c.vip, func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 1})
			server := bed.Servers[0]
			kit.Bulks(t, bed, server)
			kit.In(t, bed.Router, "ip", "-6", "route", "change", server.Locator.String(), "via", server.Addr.String(),
				"dev", server.Link, "mtu", "lock", fmt.Sprint(mtu))
			s, vip := kit.Settings(t, c.policy), netip.MustParseAddr(c.vip)
			kit.FamilyOf(&s, vip)
			farm := kit.Start(t, bed, s)
			up := kit.Begin(t, bed, vip, true, 20000, streams)
			kit.Move(t, "over a narrow link", up, size)
			kit.Finish(t, "over a narrow link", up)
			lb := bed.LBs[0]
			if n := kit.Counter(t, farm, "too_big_translated", lb); n == 0 {
				t.Error("the LB translated no word of the router's")
			}
			if n := kit.Counter(t, farm, "drop_malformed_too_big", lb); n > 0 {
				t.Errorf("%d of them it did not understand", n)
			}
		})
	}
}

// TestNarrowTunnel: the same in VXLAN. Over IPv6 the client learns its size; over IPv4 routers fragment
// what the LB sends, and none reports anything.
func TestNarrowTunnel(t *testing.T) {
	const mtu, streams, size = 1400, 2, 3_000_000
	bed := kit.Up(t, testbed.Config{Servers: 1})
	server, lb := bed.Servers[0], bed.LBs[0]
	kit.Bare(t, bed, server)
	kit.In(t, server, "ip", "route", "add", lb.Addr4.String()+"/32", "dev", "lo") // where it answers, never
	at := func(addr netip.Addr, vni int) []topo.Server {
		return []topo.Server{{Name: server.Name, Delivery: topo.ByVXLAN, Address: addr, VNI: vni, MAC: topo.MAC{2, 0, 0, 0, 0, 1}, Weight: 1}}
	}
	farm := kit.AgentlessFarm(t, bed, at(server.Addr, 100), at(server.Addr4, 101))
	kit.BareFarm{Bed: bed}.SetUp(t, server)
	kit.Bulks(t, bed, server)
	narrow := func(family string, to netip.Addr) {
		t.Helper()
		kit.In(t, bed.Router, "ip", family, "route", "add", netip.PrefixFrom(to, to.BitLen()).String(), "dev", server.Link, "mtu", "lock", fmt.Sprint(mtu))
	}
	narrow("-6", server.Addr)
	narrow("-4", server.Addr4)
	for _, vip := range []netip.Addr{bed.VIP, bed.VIP4} {
		before := kit.Counter(t, farm, "too_big_translated", lb)
		up := kit.Begin(t, bed, vip, true, 20000, streams)
		kit.Move(t, "over a narrow link", up, size)
		kit.Finish(t, "over a narrow link", up)
		if learned := kit.Counter(t, farm, "too_big_translated", lb) > before; learned != vip.Is6() {
			t.Errorf("%v: the client learned its size: %v", vip, learned)
		}
	}
	if n := fragmented(t, bed.Router); n < size/mtu {
		t.Errorf("the router fragmented %d datagrams", n)
	}
	if n := kit.Counter(t, farm, "by_vxlan", lb); n < 2*streams*size/mtu {
		t.Errorf("%d packets went in VXLAN", n)
	}
}

// fragmented is how many IPv4 datagrams a node fragmented.
func fragmented(t *testing.T, n *testbed.Node) (sum int) {
	t.Helper()
	lines := strings.Split(kit.In(t, n, "cat", "/proc/net/snmp"), "\n")
	values := strings.Fields(lines[1])
	for i, name := range strings.Fields(lines[0]) {
		if name == "FragOKs" {
			fmt.Sscan(values[i], &sum)
			return sum
		}
	}
	t.Fatalf("no FragOKs in %q", lines[0])
	return 0
}

// connOf makes a connection of a socket, which it takes over.
func connOf(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close() // FileConn has a copy
	return net.FileConn(f)
}
