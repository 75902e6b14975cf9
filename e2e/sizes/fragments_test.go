package sizes

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
	"proffer/topo"
)

const (
	dnsPort = 53
	// large is a datagram's payload that goes in three fragments.
	large = 4000
)

// datagrams makes the farm's service one of datagrams to a VIP, at both ends.
func datagrams(s *farmrun.Settings, vip netip.Addr, fragments topo.Fragments) {
	at := topo.VIP{Addr: vip, Port: dnsPort, Protocol: topo.UDP}
	s.LB = func(lb *topo.LB) { lb.Services[0].VIP, lb.Services[0].Fragments = at, fragments }
	s.Agent = func(_ *testbed.Node, a *topo.Agent) { a.Services[0].VIP = at }
}

// echoDatagrams runs an EchoUDP on a VIP of every server node.
func echoDatagrams(t *testing.T, bed *testbed.Bed, vip netip.Addr) map[string]*responder.EchoUDP {
	t.Helper()
	all := map[string]*responder.EchoUDP{}
	for _, n := range bed.Servers {
		var conn *net.UDPConn
		err := n.Do(func() (err error) {
			conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(vip, dnsPort)))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		e := responder.NewEchoUDP(n.Name)
		all[n.Name] = e
		t.Cleanup(func() { e.Close() })
		go e.Serve(conn) // ends with Close
	}
	return all
}

// speaker is a UDP socket of the client's.
func speaker(t *testing.T, bed *testbed.Bed, from, vip netip.Addr) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	err := bed.Client.Do(func() (err error) {
		c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(vip, dnsPort)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestFragmentsDropped: fragments show no port, so a service with flows has no
// use for them, and logs it.
func TestFragmentsDropped(t *testing.T) {
	for _, spelt := range []string{testbed.VIP, testbed.VIP4} {
		t.Run(spelt, func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 2})
			vip := netip.MustParseAddr(spelt)
			s := kit.Settings(t, "hunt:always")
			datagrams(&s, vip, topo.DropFragments)
			servers := echoDatagrams(t, bed, vip)
			farm := kit.Start(t, bed, s)
			c := speaker(t, bed, kit.ClientsOf(bed, vip)[0], vip)
			const pieces = 3
			for sent := range 3 {
				if _, err := c.Write(make([]byte, large)); err != nil {
					t.Fatal(err)
				}
				kit.EventuallyIs(t, "fragments dropped", pieces*uint64(sent+1), func() uint64 {
					return kit.Counter(t, farm, "drop_fragment", bed.LBs[0])
				})
			}
			if got := answerTo(t, c, "small"); got == "" {
				t.Error("a datagram in one piece is not answered")
			}
			for name, e := range servers {
				for _, d := range e.Received() {
					if d.ID != "small" {
						t.Errorf("%s heard %d bytes", name, len(d.Text))
					}
				}
			}
		})
	}
}

// answerTo sends a datagram until it is answered and returns the server: the first
// fragments of a client's may be too big for our header, which the LB reports to it.
func answerTo(t *testing.T, c *net.UDPConn, text string) (server string) {
	t.Helper()
	buffer := make([]byte, 2*large)
	kit.Eventually(t, fmt.Sprintf("%d bytes are answered", len(text)), func() bool {
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		n, err := c.Read(buffer)
		if err != nil {
			return false
		}
		name, rest, _ := strings.Cut(string(buffer[:n]), " ")
		if server = name; rest != text {
			t.Errorf("%s answers %d bytes to %d", name, len(rest), len(text))
		}
		return true
	})
	return server
}

// TestFragmentsHashed: with all packets of a service spread by addresses alone,
// the fragments of a datagram meet at one server, which has the client's other
// datagrams, too.
func TestFragmentsHashed(t *testing.T) {
	for _, spelt := range []string{testbed.VIP, testbed.VIP4} {
		t.Run(spelt, func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 3, Clients: 8})
			vip := netip.MustParseAddr(spelt)
			s := kit.Settings(t, "stateless")
			datagrams(&s, vip, topo.HashFragments)
			servers := echoDatagrams(t, bed, vip)
			farm := kit.Start(t, bed, s)
			used := map[string]bool{}
			for _, client := range kit.ClientsOf(bed, vip) {
				by := answerTo(t, speaker(t, bed, client, vip), "large "+strings.Repeat("x", large))
				used[by] = true
				for range 3 {
					if got := answerTo(t, speaker(t, bed, client, vip), "small"); got != by {
						t.Errorf("%s has the small datagrams of %s, %s the large one", got, client, by)
					}
				}
				whole := func(d responder.Datagram) bool { return d.From.Addr() == client && len(d.Text) == large }
				for name, e := range servers {
					if slices.ContainsFunc(e.Received(), whole) != (name == by) {
						t.Errorf("the large datagram of %s, which %s answered, came to %s", client, by, name)
					}
				}
			}
			if len(used) < 2 { // all of 8 at one of 3: once in 2,000
				t.Errorf("all clients meet %v", used)
			}
			if n := kit.Counter(t, farm, "drop_fragment", bed.LBs[0]); n > 0 {
				t.Errorf("%d fragments dropped", n)
			}
		})
	}
}
