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
	away, err := Open(t.Context(), netip.MustParsePrefix("5f00:0:77:77::/64"), Port)
	if err != nil {
		t.Fatalf("an address that is not there: %v", err)
	}
	if _, err := Open(t.Context(), netip.MustParsePrefix("5f00:0:77:77::/64"), Port); err == nil {
		t.Error("two sockets have one port")
	}
	away.Close()
	here := netip.MustParsePrefix("::/64") // its own address is the loopback's
	agent, err := Open(t.Context(), here, Port)
	if err != nil {
		t.Fatal(err)
	}
	lb, err := Open(t.Context(), here, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lb.Close()
	for _, n := range []int{Size, 3 * Size} {
		if err := lb.Send(netip.AddrPortFrom(wire.Own(here), Port), bytes.Repeat([]byte{7}, n)); err != nil {
			t.Fatal(err)
		}
		b, from, err := agent.Receive()
		if err != nil || len(b) != min(n, Size+1) || from.Addr() != wire.Own(here) {
			t.Errorf("%d bytes from %v, %v; want those of %d", len(b), from, err, n)
		}
	}
	agent.Close()
	if _, _, err := agent.Receive(); err == nil {
		t.Error("a closed socket received")
	}
}
