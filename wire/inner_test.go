package wire

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"proffer/topo"
)

var (
	client6, vip6 = netip.MustParseAddr("2001:db8:c::7"), netip.MustParseAddr("2001:db8:f::1")
	client4, vip4 = netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("203.0.113.1")
)

func families() map[string]IP {
	return map[string]IP{
		"IPv6": {Source: client6, Destination: vip6, Class: 0xb9, Label: 0xabcde, HopLimit: 3},
		"IPv4": {Source: client4, Destination: vip4, Class: 0xb9, ID: 0xbeef, HopLimit: 3},
	}
}

// TestChecksumVectors: the example of RFC 1071 §3, and that of RFC 791's header as it is
// widely printed.
func TestChecksumVectors(t *testing.T) {
	for data, want := range map[string]uint16{
		"0001f203f4f5f6f7":                         0x220d,
		"450000730000400040110000c0a80001c0a800c7": 0xb861,
		"45000073000040004011b861c0a80001c0a800c7": 0,
		"00":     0xffff,
		"0001f2": ^uint16(0xf201),
	} {
		if got := Checksum(unhex(t, data)); got != want {
			t.Errorf("checksum of %s is %#04x, want %#04x", data, got, want)
		}
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestInner holds every packet against another encoder: all of its bytes.
func TestInner(t *testing.T) {
	segment := TCP{From: 40000, To: 80, Seq: 7, Ack: 9, Flags: SYN | ACK, Window: 1000, Options: []byte{2, 4, 5, 0xa0}}
	for family, h := range families() {
		for _, payload := range []string{"", "x", "even", "odd length"} {
			data := []byte(payload)
			tcp := &layers.TCP{SrcPort: 40000, DstPort: 80, Seq: 7, Ack: 9, SYN: true, ACK: true, Window: 1000,
				Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 0xa0}}}}
			equal(t, family+" TCP "+payload, h.TCP(segment, data), encoded(t, h, layers.IPProtocolTCP, tcp, data))
			udp := &layers.UDP{SrcPort: 40000, DstPort: 53}
			equal(t, family+" UDP "+payload, h.UDP(40000, 53, data), encoded(t, h, layers.IPProtocolUDP, udp, data))
		}
		about := h.UDP(1, 2, []byte("too long"))
		body := append([]byte{0, 0, 0x05, 0x78}, about...)
		if family == "IPv4" {
			icmp := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4), Seq: 1400}
			equal(t, "ICMP", h.TooBig(1400, about), encoded(t, h, layers.IPProtocolICMPv4, icmp, about))
		} else {
			icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(2, 0)}
			equal(t, "ICMPv6", h.TooBig(1400, about), encoded(t, h, layers.IPProtocolICMPv6, icmp, body))
		}
	}
}

// TestZeroChecksumOfUDP: a sum of 0 is sent as 0xffff (RFC 768).
func TestZeroChecksumOfUDP(t *testing.T) {
	h := families()["IPv6"]
	first := h.UDP(1, 2, []byte{0, 0})
	sum := first[IPv6Bytes+6 : IPv6Bytes+8]
	if got := h.UDP(1, 2, sum)[IPv6Bytes+6:][:2]; !bytes.Equal(got, []byte{0xff, 0xff}) {
		t.Errorf("checksum %x, want ffff", got)
	}
}

func encoded(t *testing.T, h IP, protocol layers.IPProtocol, upper gopacket.SerializableLayer, payload []byte) []byte {
	t.Helper()
	ip6 := &layers.IPv6{Version: 6, TrafficClass: h.Class, FlowLabel: h.Label, HopLimit: h.HopLimit, NextHeader: protocol,
		SrcIP: h.Source.AsSlice(), DstIP: h.Destination.AsSlice()}
	ip4 := &layers.IPv4{Version: 4, TOS: h.Class, Id: h.ID, Flags: layers.IPv4DontFragment, TTL: h.HopLimit, Protocol: protocol,
		SrcIP: h.Source.AsSlice(), DstIP: h.Destination.AsSlice()}
	ip, network := gopacket.SerializableLayer(ip6), gopacket.NetworkLayer(ip6)
	if h.Source.Is4() {
		ip, network = ip4, ip4
	}
	if over, ok := upper.(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}); ok {
		if err := over.SetNetworkLayerForChecksum(network); err != nil {
			t.Fatal(err)
		}
	}
	b := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, options, ip, upper, gopacket.Payload(payload)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func equal(t *testing.T, name string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n %x, want\n %x", name, got, want)
	}
}

// TestDefaultWindow: a segment offers the largest window by default.
func TestDefaultWindow(t *testing.T) {
	for family, h := range families() {
		if _, tcp, _, err := ParseTCP(h.TCP(TCP{}, nil)); err != nil || tcp.Window != 65535 {
			t.Errorf("%s: %+v %v", family, tcp, err)
		}
	}
}

func TestFrame(t *testing.T) {
	to, from := topo.MAC{1, 2, 3, 4, 5, 6}, topo.MAC{7, 8, 9, 10, 11, 12}
	for first, kind := range map[byte]string{0x60: "86dd", 0x45: "0800"} {
		want := unhex(t, "0102030405060708090a0b0c"+kind)
		equal(t, kind, Frame(to, from, []byte{first, 9}), append(want, first, 9))
	}
}
