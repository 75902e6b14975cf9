package wire

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"proffer/policy"
	"proffer/topo"
)

var (
	lb = netip.MustParsePrefix("fd00:0:0:b::/64")
	s1 = netip.MustParsePrefix("fd00:0:0:101::/64")
	s2 = netip.MustParsePrefix("fd00:0:0:102::/64")
)

// TestSID: the layout that docs/design/wire.md draws, written down by hand.
func TestSID(t *testing.T) {
	s := SID{Locator: s1, Function: ConnectForce, Generation: 0x1234, Flags: Retry | Final, KeyID: 5, Report: 0x0607}
	want := netip.MustParseAddr("fd00:0:0:101:cf:1234:305:607")
	if s.Addr() != want || ParseSID(want) != s {
		t.Errorf("%v is %v, want %v; %v is %v", s, s.Addr(), want, want, ParseSID(want))
	}
	if own := Own(s1); own != netip.MustParseAddr("fd00:0:0:101::1") {
		t.Errorf("a node's own address is %v", own)
	}
}

// TestGolden: an offer by each wire, byte by byte.
func TestGolden(t *testing.T) {
	packet := IP{Source: client6, Destination: vip6, HopLimit: DefaultHopLimit}.UDP(1, 2, nil)
	upper := packet[IPv6Bytes:]
	r := Route{
		From: Own(lb), Class: 0x2e, Label: 0x12345, HopLimit: 60,
		Segments: []netip.Addr{SID{Locator: s1, Function: ConnectAvail}.Addr(), SID{Locator: s2, Function: ConnectForce}.Addr()},
	}
	const from, to1, to2 = "fd0000000000000b0000000000000001", "fd0000000000010100ca000000000000", "fd0000000000010200cf000000000000"
	const client, vip = "20010db8000c00000000000000000007", "20010db8000f00000000000000000001"
	equal(t, "encap", r.Put(topo.Encap, packet), slices.Concat(
		unhex(t, "62e12345 0048 2b 3c"+from+to1+"29 02 04 01 00 00 0000"+to2), packet))
	equal(t, "encap to one", Route{From: r.From, Segments: r.Segments[:1], HopLimit: DefaultHopLimit}.Encap(packet), slices.Concat(
		unhex(t, "60000000 0030 29 40"+from+to1), packet))
	equal(t, "insert", r.Put(topo.Insert, packet), slices.Concat(
		unhex(t, "60000000 0050 2b 40"+client+to1+"11 08 04 02 03 00 0000"+vip+to2+to1+from), upper))
	four := IP{Source: client4, Destination: vip4}.UDP(1, 2, nil)
	if b := r.Encap(four); b[IPv6Bytes] != 4 {
		t.Errorf("IPv4 inside is announced as %d", b[IPv6Bytes])
	}
}

// routed is a random packet with segments, and the result that Parse must have.
type routed struct {
	packet []byte
	want   Packet
	all    []netip.Addr
	key    topo.Key
	flow   policy.Flow
}

func randomRoute(rng *rand.Rand, payload []byte) (r routed) {
	h := IP{Source: client6, Destination: vip6, Class: uint8(rng.Uint32()), Label: rng.Uint32N(1 << 20), HopLimit: 1 + uint8(rng.IntN(255))}
	w := topo.Wire(rng.IntN(2))
	if w == topo.Encap && rng.IntN(2) == 0 {
		h = IP{Source: client4, Destination: vip4, ID: 7}
	}
	r.flow = policy.Flow{Client: netip.AddrPortFrom(h.Source, 40000), VIP: netip.AddrPortFrom(h.Destination, 80)}
	r.key = topo.Key{byte(rng.Uint32())}
	inner := h.TCP(TCP{From: 40000, To: 80, Seq: rng.Uint32(), Flags: uint8(rng.Uint32())}, payload)
	for range 1 + rng.IntN(topo.MaxSegments-2) {
		sid := SID{Locator: s1, Function: Function(rng.Uint32()), Generation: uint16(rng.Uint32()), Flags: Flags(rng.Uint32()), KeyID: 1, Report: uint16(rng.Uint32())}
		r.all = append(r.all, sid.Addr())
	}
	route := Route{Segments: r.all, Class: h.Class, Label: 9, HopLimit: 60}.Signed(r.key, r.flow, lb, w, inner)
	r.packet = route.Put(w, inner)
	r.want = Packet{Wire: w, Left: len(r.all), Inner: inner, IP: IP{Source: route.From, Destination: r.all[0], Class: h.Class, Label: 9, HopLimit: 60}}
	switch {
	case w == topo.Insert:
		r.want.IP, r.want.List = h, slices.Concat([]netip.Addr{route.From}, r.all, []netip.Addr{vip6})
		r.want.IP.Destination = r.all[0]
	case len(r.all) > 1:
		r.want.List, r.want.Left = r.all[1:], len(r.all)-1
	default:
		r.want.Left = 0
	}
	return r
}

// FuzzRoundTrip: Parse undoes Put, and believes the sender's tag and no changed one.
func FuzzRoundTrip(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed, []byte("payload"))
	}
	f.Fuzz(func(t *testing.T, seed uint64, payload []byte) {
		r := randomRoute(rand.New(rand.NewPCG(seed, 0)), payload[:min(len(payload), 1000)])
		got, err := Parse(r.packet)
		if err != nil || !reflect.DeepEqual(got, r.want) {
			t.Fatalf("%x is %+v %v, want %+v", r.packet, got, err, r.want)
		}
		if !slices.Equal(got.Segments(), r.all) {
			t.Fatalf("segments %v, want %v", got.Segments(), r.all)
		}
		if !got.Authentic(r.key, r.flow) {
			t.Fatalf("its own tag %x is not believed", got.Tag())
		}
		other := r.flow
		other.Protocol = topo.UDP
		if got.Authentic(r.key, other) {
			t.Fatal("its tag is believed about another flow")
		}
	})
}

// FuzzParse: no bytes are too strange, and accessors of an accepted packet do not fail.
func FuzzParse(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(randomRoute(rand.New(rand.NewPCG(seed, 0)), nil).packet, uint8(0), uint8(0))
	}
	f.Fuzz(func(t *testing.T, packet []byte, at, to uint8) {
		if packet = slices.Clone(packet); int(at) < len(packet) {
			packet[at] = to
		}
		if p, err := Parse(packet); err == nil {
			p.Segments()
			p.Authentic(topo.Key{}, policy.Flow{})
			ParseTCP(p.Inner)
		}
	})
}

// TestParseRejects: packets that no program of ours would read.
func TestParseRejects(t *testing.T) {
	plain := IP{Source: client6, Destination: vip6}.TCP(TCP{}, nil)
	route := Route{From: Own(lb), Segments: []netip.Addr{Own(s1), Own(s2)}}
	good := route.Encap(plain)
	changed := func(at int, to byte) []byte {
		b := slices.Clone(good)
		b[at] = to
		return b
	}
	for name, packet := range map[string][]byte{
		"nothing":                 nil,
		"no segments":             plain,
		"no SRH but a sender":     route.Insert(plain)[:IPv6Bytes],
		"shorter than its length": good[:len(good)-1],
		"another routing type":    changed(IPv6Bytes+2, 3),
		"too many left":           changed(IPv6Bytes+3, 3),
		"too many segments":       changed(IPv6Bytes+4, 1),
		"a header too long":       changed(IPv6Bytes+1, 200),
	} {
		if p, err := Parse(packet); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if _, _, _, err := ParseTCP(IP{Source: client4, Destination: vip4}.UDP(1, 2, nil)); err == nil {
		t.Error("a datagram is taken for a segment")
	}
}
