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
	second = "fd00000000000200 00cf 1234 00000000"
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
	in := wire(t, "020000000011 0200000000fe 86dd", "6 2e abcde 0054 2b 3f", lbSelf, here, route, second, inner)
	want := wire(t, "0200000000fe 020000000011 86dd", "6 2e abcde 0054 2b 3e", lbSelf, second, "29 02 04 00 00 00 0000", second, inner)
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
			Buckets: 7, Servers: []topo.Server{{Locator: netip.MustParsePrefix("fd00:0:0:200::/64"), Weight: 1}},
		}},
	}
	got := lb.Receive(wire(t, synFrame))
	if got.Action != Transmit || len(got.Frame) != 74+40 {
		t.Fatalf("%v (%s), %d bytes", got.Action, got.Why, len(got.Frame))
	}
	if want := wire(t, "0200000000fe 020000000011 86dd 62"); !bytes.Equal(got.Frame[:15], want) {
		t.Errorf("starts with %x, want %x", got.Frame[:15], want)
	}
	if want := wire(t, "ebf7cd 003c 29 40", "fd0000000000000b 00000000 000bf7cd", "fd00000000000200 00cf"); !bytes.Equal(got.Frame[15:15+len(want)], want) { // the label twice
		t.Errorf("outer header goes on with %x, want %x", got.Frame[15:15+len(want)], want)
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
		{route + second, ""},
		{"29 02 04 00 00 00 0000" + second, ""},
		{"29 02 04 02 00 00 0000" + second, BadSRH},
		{"29 02 04 01 01 00 0000" + second, BadSRH},
		{"29 00 04 00 00 00 0000", BadSRH},
		{"29 02 03 01 00 00 0000" + second, BadSRH},
		{"29 04 04 01 00 00 0000" + second, BadSRH},
		{"29 02 04 01 00 00", BadSRH},
	} {
		if _, _, bad := parseSegments(wire(t, c.header)); bad != c.bad {
			t.Errorf("%s: %q, want %q", c.header, bad, c.bad)
		}
	}
}

// TestDecapsulated: RFC 6040, figure 4, row by row: Not-ECT, ECT(0), ECT(1), CE
// inside; columns the same outside. 9 is a drop.
func TestDecapsulated(t *testing.T) {
	order := []byte{0, 2, 1, 3}
	for i, row := range [][]byte{{0, 0, 0, 9}, {2, 2, 1, 3}, {1, 1, 1, 3}, {3, 3, 3, 3}} {
		for o, want := range row {
			got, ok := decapsulated(ip{class: 0xa0 | order[i]}, ip{class: order[o]})
			if ok != (want != 9) || ok && got.class != 0xa0|want {
				t.Errorf("inner %02b, outer %02b: %#x, %v", order[i], order[o], got.class, ok)
			}
		}
	}
}

// TestInserted: an offer in the client's own header: (sender, one server, VIP).
func TestInserted(t *testing.T) {
	w := path{
		segments: []netip.Addr{netip.MustParseAddr("fd00:0:0:200:cf:1234::")}, insert: true,
		tag: func([]netip.Addr) netip.Addr { return netip.MustParseAddr("fd00:0:0:b::1") },
	}
	p, ok := parseIPv6(wire(t, synFrame)[14:])
	if !ok {
		t.Fatal("the test's own packet")
	}
	want := wire(t, "6 2e 12345 004c 2b 3c", client, second, "06 06 04 01 02 00 0000", vip, second, lbSelf, synTCP)
	if got := w.put(p, 1); !bytes.Equal(got, want) || w.bytes() != 56 {
		t.Errorf("%d bytes\n got %x\nwant %x", w.bytes(), got, want)
	}
}

// TestOpenInserted undoes it at the server.
func TestOpenInserted(t *testing.T) {
	frame := wire(t, "6 2e 12345 004c 2b 3c", client, second, "06 06 04 01 02 00 0000", vip, second, lbSelf, synTCP)
	outer, _ := parseIPv6(frame)
	s, bad := open(outer)
	if bad != "" || !s.inserted || s.from() != netip.MustParsePrefix("fd00:0:0:b::/64") || len(s.signed()) != 2 {
		t.Fatalf("%q: %+v", bad, s)
	}
	if _, more := s.next(); more {
		t.Error("its own destination is no node to pass it on to")
	}
	if p, ok := s.decapsulated(); !ok || !bytes.Equal(p.append(nil), wire(t, synFrame)[14:]) {
		t.Errorf("%x", p.append(nil))
	}
}

// TestIPv4: a header from RFC 1071's own kind of arithmetic, one hop later.
func TestIPv4(t *testing.T) {
	in := wire(t, "45 00 0073 0000 4000 40 11 b861 c0a80001 c0a800c7") // a well-known example
	p, ok := parseIPv4(append(in, make([]byte, 95)...))
	if !ok || !p.whole || checksum(in) != 0 {
		t.Fatalf("%+v", p)
	}
	p.hop--
	got := p.append(nil)[:20]
	if want := wire(t, "45 00 0073 0000 4000 3f 11 b961 c0a80001 c0a800c7"); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	p.class = 3
	if got := p.append(nil)[:20]; checksum(got) != 0 || got[1] != 3 {
		t.Errorf("marked: %x", got)
	}
}

// TestClamped: the MSS at an even and an odd place, checksums right either way.
func TestClamped(t *testing.T) {
	for _, options := range []string{"020405b4", "01020405b4000000", "0303070205b40000", "00020405b4000000"} {
		b := wire(t, "0050 9c40 00000001 00000002 00 12 fde8 0000 0000", options)
		b[12] = byte(len(b)) / 4 << 4
		from, to := netip.MustParseAddr("2001:db8:f::1"), netip.MustParseAddr("2001:db8:c::7")
		check := checksum(pseudo(from, to, nextTCP, len(b)), b)
		b[16], b[17] = byte(check>>8), byte(check)
		got := clamped(ip{six: true, src: from, dst: to, payload: b}, 0, 1460).payload
		if checksum(pseudo(from, to, nextTCP, len(got)), got) != 0 {
			t.Errorf("%s: checksum of %x", options, got)
		}
		lowered := bytes.Contains(got, []byte{2, 4, 0x05, 0x78}) // 1400
		if want := options[:2] != "00" && options[:2] != "03"; lowered != want {
			t.Errorf("%s: %x", options, got[20:])
		}
	}
}
