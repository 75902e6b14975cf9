package testbed

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// who lets each LB answer datagrams to both VIPs with its name.
func who(t *testing.T, lbs ...*Node) {
	t.Helper()
	for _, n := range lbs {
		err := n.inside(func() error {
			if err := n.space.address("lo", vips()...); err != nil {
				return err
			}
			return n.space.settle(vips()...)
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, vip := range vips() {
			answer(t, n, vip.Addr())
		}
	}
}

func answer(t *testing.T, n *Node, vip netip.Addr) {
	t.Helper()
	var server net.PacketConn
	err := n.Do(func() (err error) {
		server, err = net.ListenPacket("udp", netip.AddrPortFrom(vip, Port).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		buffer := make([]byte, 100)
		for {
			_, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			server.WriteTo([]byte(n.Name), from)
		}
	}()
}

// ask returns the node that answers on a flow.
func ask(t *testing.T, c net.Conn) (string, error) {
	t.Helper()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte("who")); err != nil {
		return "", err
	}
	name := make([]byte, 100)
	n, err := c.Read(name)
	return string(name[:n]), err
}

// survey asks twice on each of many flows to each VIP and counts the flows by
// the LB that answered, which must be one.
func survey(t *testing.T, b *Bed) map[string]int {
	t.Helper()
	const flows = 100
	got := map[string]int{}
	for _, vip := range vips() {
		for range flows {
			c := dial(t, b.Client, "udp", vip.Addr())
			first, err := ask(t, c)
			if err != nil {
				t.Fatalf("no host answers at %s: %v", vip.Addr(), err)
			}
			if second, err := ask(t, c); err != nil || second != first {
				t.Fatalf("a flow to %s went to %s, then to %q (%v)", vip.Addr(), first, second, err)
			}
			got[vip.Addr().String()+" "+first]++
		}
	}
	return got
}

// wantSpread wants flows of both VIPs at these LBs and no others.
func wantSpread(t *testing.T, b *Bed, lbs ...*Node) {
	t.Helper()
	got := survey(t, b)
	for _, n := range lbs {
		for _, vip := range vips() {
			key := vip.Addr().String() + " " + n.Name
			if got[key] == 0 {
				t.Errorf("no flow to %s came to %s: %v", vip.Addr(), n.Name, got)
			}
			delete(got, key)
		}
	}
	if len(got) > 0 {
		t.Errorf("flows went elsewhere, too: %v", got)
	}
}

func announce(t *testing.T, b *Bed, lbs ...*Node) {
	t.Helper()
	if err := b.Announce(lbs...); err != nil {
		t.Fatal(err)
	}
}

func TestFlowsSpreadOverTheAnnounced(t *testing.T) {
	b := up(t, Config{Servers: 1, LBs: 4})
	// The hash is of the ports, not of the label, which a flow may change.
	if err := b.Client.Do(func() error { return setAll([]sysctl{{"net/ipv6/auto_flowlabels", "0"}}) }); err != nil {
		t.Fatal(err)
	}
	who(t, b.LBs...)
	wantSpread(t, b, b.LBs...)
	for _, lbs := range [][]*Node{b.LBs[1:2], b.LBs[:3], {b.LBs[0], b.LBs[3]}, b.LBs} {
		announce(t, b, lbs...)
		wantSpread(t, b, lbs...)
	}
}

func TestNotAnnounced(t *testing.T) {
	b := up(t, Config{Servers: 1, LBs: 2})
	who(t, b.LBs...)
	announce(t, b)
	announce(t, b) // again is no error
	for _, vip := range vips() {
		c := dial(t, b.Client, "udp", vip.Addr())
		hearErrors(t, c)
		if name, err := ask(t, c); !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("%s without an LB: %q, %v, want %v", vip, name, err, unix.ENETUNREACH)
		}
	}
	announce(t, b, b.LBs[1])
	wantSpread(t, b, b.LBs[1])
}

// hearErrors makes a UDP socket report passing ICMP errors, too.
func hearErrors(t *testing.T, c net.Conn) {
	t.Helper()
	control(t, c, func(fd int) error {
		if c.RemoteAddr().(*net.UDPAddr).AddrPort().Addr().Is4() {
			return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
		}
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	})
}

// control runs f on a connection's socket.
func control(t *testing.T, c net.Conn, f func(fd int) error) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err == nil {
		var failed error
		err = raw.Control(func(fd uintptr) { failed = f(int(fd)) })
		err = errors.Join(err, failed)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Flows are answered while the route flaps between LBs. The kernel may refuse a
// packet that has found a next hop just as it is freed: about one announcement
// in 50,000, where a route that is missing for a moment refuses ten in 200.
func TestRouteIsNeverMissing(t *testing.T) {
	const announcements = 200
	b := up(t, Config{Servers: 1, LBs: 3})
	who(t, b.LBs...)
	done := make(chan error)
	go func() {
		var err error
		for i := range announcements {
			err = errors.Join(err, b.Announce(b.LBs[:1+i%3]...))
		}
		done <- err
	}()
	flows := []net.Conn{dial(t, b.Client, "udp", b.VIP), dial(t, b.Client, "udp", b.VIP4)}
	for _, c := range flows {
		hearErrors(t, c)
	}
	var refused []error
	for asked := 0; ; asked++ {
		select {
		case err := <-done:
			if err != nil || asked == 0 {
				t.Fatalf("%d questions: %v", asked, err)
			}
			if len(refused) > announcements/100 {
				t.Fatalf("%d of %d questions were refused: %v", len(refused), asked, errors.Join(refused...))
			}
			return
		default:
		}
		if _, err := ask(t, flows[asked%2]); err != nil {
			refused = append(refused, err)
		}
	}
}

func TestOnlyLBsAreAnnounced(t *testing.T) {
	a, b := up(t, Config{Servers: 1}), up(t, Config{Servers: 1})
	for _, n := range []*Node{b.Servers[0], b.Router, a.LBs[0]} {
		if err := b.Announce(n); err == nil || !strings.Contains(err.Error(), n.Name) {
			t.Errorf("announced %s of run %s: %v", n.Name, n.bed.Run, err)
		}
	}
}

// spawn starts this test binary in a node in one of the modes of TestMain.
func spawn(t *testing.T, n *Node, mode ...string) *Process {
	t.Helper()
	p, err := n.Start(t.Context(), "env", childEnv+"="+strings.Join(mode, " "), os.Args[0], "-test.run=^TestMain$")
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the child to be ready", func() bool { return p.Log() != "" })
	return p
}
