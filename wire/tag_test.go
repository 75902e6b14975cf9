package wire

import (
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"testing"

	"proffer/policy"
	"proffer/topo"
)

// TestTagVector holds Tag against SipHash-2-4 of the same bytes written down by
// hand: flow, locator, segments.
func TestTagVector(t *testing.T) {
	key := topo.Key{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	f := policy.Flow{
		Client:   netip.MustParseAddrPort("192.0.2.7:40000"),
		VIP:      netip.MustParseAddrPort("203.0.113.1:53"),
		Protocol: topo.UDP,
	}
	sender := netip.MustParsePrefix("fd00:0:0:b::/64")
	segments := []netip.Addr{netip.MustParseAddr("fd00:0:0:102:cf::"), netip.MustParseAddr("fd00:0:0:101:ca::")}
	data, err := hex.DecodeString("00000000000000000000ffffc0000207" + "00000000000000000000ffffcb007101" +
		"9c400035" + "11000000" + "fd0000000000000b" +
		"fd0000000000010200cf000000000000" + "fd0000000000010100ca000000000000")
	if err != nil {
		t.Fatal(err)
	}
	want := policy.SipHash(key, data)
	got := Tag(key, f, sender, segments)
	for i := range got {
		if got[i] != byte(want>>(8*i)) {
			t.Fatalf("tag %x, want %016x, little endian", got, want)
		}
	}
}

// TestTagCovers: every part of a signal changes its tag.
func TestTagCovers(t *testing.T) {
	f := policy.Flow{Client: netip.MustParseAddrPort("[2001:db8::7]:1"), VIP: netip.MustParseAddrPort("[2001:db8::1]:80")}
	a, b := netip.MustParseAddr("fd00::ca:0:0:0"), netip.MustParseAddr("fd00::cf:0:0:0")
	here, there := netip.MustParsePrefix("fd00::/64"), netip.MustParsePrefix("fd01::/64")
	other := f
	other.Protocol = topo.UDP
	seen := map[[8]byte]string{}
	for name, tag := range map[string][8]byte{
		"as it is":         Tag(topo.Key{}, f, here, []netip.Addr{a, b}),
		"another key":      Tag(topo.Key{1}, f, here, []netip.Addr{a, b}),
		"another protocol": Tag(topo.Key{}, other, here, []netip.Addr{a, b}),
		"another sender":   Tag(topo.Key{}, f, there, []netip.Addr{a, b}),
		"another order":    Tag(topo.Key{}, f, here, []netip.Addr{b, a}),
		"fewer segments":   Tag(topo.Key{}, f, here, []netip.Addr{a}),
		"no segments":      Tag(topo.Key{}, f, here, nil),
	} {
		if same, found := seen[tag]; found {
			t.Errorf("%s and %s have one tag", name, same)
		}
		seen[tag] = name
	}
}

// TestGeneration: 0 means "none" and belongs to no connection.
func TestGeneration(t *testing.T) {
	if Generation(0) == 0 || Generation(1) == 0 {
		t.Error("generation 0 means \"none\" and may belong to no connection")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		if Generation(rng.Uint32()) == 0 {
			t.Fatal("a connection of generation 0")
		}
	}
}
