package e2e

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/responder"
)

// within is how long a flow may take to answer before it counts as silent:
// long enough for TCP to send a lost segment again, on a slow machine too.
const within = 20 * time.Second

// echoes runs an Echo on the VIP, IPv6 and IPv4, of every server node.
func echoes(t *testing.T, bed *testbed.Bed, nodes ...*testbed.Node) map[string]*responder.Echo {
	t.Helper()
	all := map[string]*responder.Echo{}
	for _, n := range nodes {
		all[n.Name] = echo(t, n, bed.VIP, bed.VIP4)
	}
	return all
}

// echo runs one on the given addresses of a node until the test ends.
func echo(t *testing.T, n *testbed.Node, vips ...netip.Addr) *responder.Echo {
	t.Helper()
	e := responder.NewEcho(n.Name)
	t.Cleanup(func() { e.Close() })
	for _, vip := range vips {
		var l net.Listener
		err := n.Do(func() (err error) {
			l, err = responder.Listen(netip.AddrPortFrom(vip, testbed.Port), 1024)
			return err
		})
		if err != nil {
			t.Fatalf("listen on %s: %v", n.Name, err)
		}
		go e.Serve(l) // ends with Close
	}
	return e
}

// ends gives k flows an address each, spread over the client's.
func ends(addrs []netip.Addr, first, k int) []netip.AddrPort {
	from := make([]netip.AddrPort, k)
	for i := range from {
		from[i] = netip.AddrPortFrom(addrs[i%len(addrs)], uint16(first+i/len(addrs)))
	}
	return from
}

// open opens k long flows to the VIP; all of them must answer.
func open(t *testing.T, bed *testbed.Bed, first, k int) *traffic.Flows {
	t.Helper()
	return openTo(t, bed, bed.VIP, bed.ClientAddrs, first, k)
}

func openTo(t *testing.T, bed *testbed.Bed, vip netip.Addr, clients []netip.Addr, first, k int) *traffic.Flows {
	t.Helper()
	f, err := traffic.OpenFlows(t.Context(), traffic.Dial{
		To: netip.AddrPortFrom(vip, testbed.Port), From: ends(clients, first, k),
		Rate: 1000, Timeout: within, Enter: bed.Client.Enter,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	alive(t, "after opening", f)
	return f
}

// alive makes every flow exchange a line, and fails if one does not.
func alive(t *testing.T, when string, f *traffic.Flows) {
	t.Helper()
	bad := 0
	for _, a := range f.Exchange(t.Context(), within) {
		if a.Outcome == traffic.OK {
			continue
		}
		if bad++; bad <= 5 {
			t.Errorf("%s: flow from %s: %s (%s)", when, a.From, a.Outcome, a.Cause)
		}
	}
	if bad > 5 {
		t.Errorf("%s: and %d more", when, bad-5)
	}
}
