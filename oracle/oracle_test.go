package oracle

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"

	"proffer/topo"
)

// Frames written by hand, field by field.
const (
	synFrame = "020000000011 0200000000fe 86dd" +
		"6 2e 12345 0014 06 3c" + client + vip + synTCP
	client = "20010db8000c00000000000000000007"
	vip    = "20010db8000f00000000000000000001"
	synTCP = "9c40 0050 006acfc0 00000000 5002 fde8 0000 0000"
	route  = "29 02 04 01 00 00 0000" // IPv6 next, 16 bytes, one left, entry 0 the last
	here   = "fd00000000000100 00ca 1234 00000000"
	other  = "fd00000000000200 00cf 1234 00000000"
	lbSelf = "fd0000000000000b 0000 0000 00000001"
)

// wire reads the hexadecimal digits of its parts, spaces aside.
func wire(t *testing.T, parts ...string) []byte {
	t.Helper()
	var digits []byte
	for _, p := range parts {
		digits = append(digits, bytes.ReplaceAll([]byte(p), []byte(" "), nil)...)
	}
	b, err := hex.DecodeString(string(digits))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func agent() *Agent {
	return &Agent{
		Node: Node{
			Locator:    netip.MustParsePrefix("fd00:0:0:100::/64"),
			MAC:        topo.MAC{2, 0, 0, 0, 0, 0x11},
			MTU:        1500,
			Neighbours: topo.NextHops{netip.MustParsePrefix("::/0"): {2, 0, 0, 0, 0, 0xfe}},
		},
		Services: map[topo.VIP]Offering{{Addr: netip.MustParseAddr("2001:db8:f::1"), Port: 80}: {Listening: true}},
	}
}

// TestPassOn: RFC 8754 §4.3.1.1: hop limit and segments left one less, the next
// segment the destination, everything else as it was.
func TestPassOn(t *testing.T) {
	inner := "6 2e 12345 0014 06 3b" + client + vip + synTCP
	in := wire(t, "020000000011 0200000000fe 86dd", "6 2e abcde 0054 2b 3f", lbSelf, here, route, other, inner)
	want := wire(t, "0200000000fe 020000000011 86dd", "6 2e abcde 0054 2b 3e", lbSelf, other, "29 02 04 00 00 00 0000", other, inner)
	got := agent().Receive(in)
	if got.Action != Transmit || !bytes.Equal(got.Frame, want) {
		t.Errorf("%v (%s)\n got %x\nwant %x", got.Action, got.Why, got.Frame, want)
	}
}

// TestOffer: H.Encaps.Red of a pool of one: no routing header.
func TestOffer(t *testing.T) {
	lb := &LB{
		Node: Node{
			Locator: netip.MustParsePrefix("fd00:0:0:b::/64"), MAC: topo.MAC{2, 0, 0, 0, 0, 0x11}, MTU: 1500,
			Neighbours: topo.NextHops{netip.MustParsePrefix("::/0"): {2, 0, 0, 0, 0, 0xfe}},
		},
		Services: []topo.Service{{
			VIP: topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::1"), Port: 80}, Dispatch: topo.Hunt, Choices: 2,
			Servers: []topo.Server{{Locator: netip.MustParsePrefix("fd00:0:0:200::/64")}},
		}},
	}
	got := lb.Receive(wire(t, synFrame))
	if got.Action != Transmit || len(got.Frame) != 74+40 {
		t.Fatalf("%v (%s), %d bytes", got.Action, got.Why, len(got.Frame))
	}
	if want := wire(t, "0200000000fe 020000000011 86dd 62"); !bytes.Equal(got.Frame[:15], want) {
		t.Errorf("starts with %x, want %x", got.Frame[:15], want)
	}
	if want := wire(t, "003c 29 40", lbSelf, "fd00000000000200 00cf"); !bytes.Equal(got.Frame[18:18+len(want)], want) {
		t.Errorf("outer header goes on with %x, want %x", got.Frame[18:18+len(want)], want)
	}
	if want := wire(t, "6 2e 12345 0014 06 3b", client, vip, synTCP); !bytes.Equal(got.Frame[54:], want) {
		t.Errorf("inner packet %x, want %x", got.Frame[54:], want)
	}
}

// TestSegments: which routing headers are malformed.
func TestSegments(t *testing.T) {
	for _, c := range []struct {
		header string
		bad    Reason
	}{
		{route + other, ""},
		{"29 02 04 00 00 00 0000" + other, ""},
		{"29 02 04 02 00 00 0000" + other, BadSRH},
		{"29 02 04 01 01 00 0000" + other, BadSRH},
		{"29 00 04 00 00 00 0000", BadSRH},
		{"29 02 03 01 00 00 0000" + other, BadSRH},
		{"29 04 04 01 00 00 0000" + other, BadSRH},
		{"29 02 04 01 00 00", BadSRH},
	} {
		if _, _, bad := parseSegments(wire(t, c.header)); bad != c.bad {
			t.Errorf("%s: %q, want %q", c.header, bad, c.bad)
		}
	}
	for tlvs, want := range map[string]bool{
		"": true, "0000": true, "0402 0000": true, "0403 0000": false, "04": false, "00 04": false,
	} {
		if fits(wire(t, tlvs)) != want {
			t.Errorf("TLVs %s fit: %v", tlvs, !want)
		}
	}
}

// TestDecapsulated: RFC 6040, figure 4, row by row: Not-ECT, ECT(0), ECT(1), CE
// inside; columns the same outside. 9 is a drop.
func TestDecapsulated(t *testing.T) {
	order := []byte{0, 2, 1, 3}
	for i, row := range [][]byte{{0, 0, 0, 9}, {2, 2, 1, 3}, {1, 1, 1, 3}, {3, 3, 3, 3}} {
		for o, want := range row {
			got, ok := decapsulated(ipv6{class: 0xa0 | order[i]}, ipv6{class: order[o]})
			if ok != (want != 9) || ok && got.class != 0xa0|want {
				t.Errorf("inner %02b, outer %02b: %#x, %v", order[i], order[o], got.class, ok)
			}
		}
	}
}
