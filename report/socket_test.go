package report

import (
	"bytes"
	"net/netip"
	"testing"

	"proffer/wire"
)

// TestSocket: datagrams cross between sockets, which a node may open before it has the address; a longer
// one than a message is none.
func TestSocket(t *testing.T) {
	absent := At(netip.MustParsePrefix("5f00:0:77:77::/64"))
	away, err := Open(t.Context(), absent)
	if err != nil {
		t.Fatalf("an address that is not there: %v", err)
	}
	if _, err := Open(t.Context(), absent); err == nil {
		t.Error("two sockets have one port")
	}
	away.Close()
	for _, here := range []netip.Addr{wire.Own(netip.MustParsePrefix("::/64")), netip.MustParseAddr("127.0.0.1")} { // loopback's
		agent, err := Open(t.Context(), netip.AddrPortFrom(here, Port))
		if err != nil {
			t.Fatal(err)
		}
		lb, err := Open(t.Context(), netip.AddrPortFrom(here, 0))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{Size, NodeSize, 3 * NodeSize} {
			if err := lb.Send(netip.AddrPortFrom(here, Port), bytes.Repeat([]byte{7}, n)); err != nil {
				t.Fatal(err)
			}
			b, from, err := agent.Receive()
			if err != nil || len(b) != min(n, NodeSize+1) || from.Addr() != here {
				t.Errorf("%d bytes from %v, %v; want those of %d", len(b), from, err, n)
			}
		}
		lb.Close()
		agent.Close()
		if _, _, err := agent.Receive(); err == nil {
			t.Error("a closed socket received")
		}
	}
}
