package farmrun

import (
	"net/netip"
	"slices"
	"testing"
)

func TestRandomEndsAreAllDifferent(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")}
	n := Ports + 100
	if ClientsFor(n) != 2 || ClientsFor(Ports) != 1 {
		t.Errorf("%d and %d addresses", ClientsFor(n), ClientsFor(Ports))
	}
	ends := RandomEnds(3, addrs, n)
	seen := map[netip.AddrPort]bool{}
	for _, end := range ends {
		if seen[end] || end.Port() < FirstPort {
			t.Fatalf("%s twice, or its port is reserved", end)
		}
		seen[end] = true
	}
	if slices.Equal(ends[:10], RandomEnds(4, addrs, 10)) {
		t.Error("two seeds give the same ends")
	}
}
