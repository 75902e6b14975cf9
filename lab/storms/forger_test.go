package storms

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"proffer/lab/testbed"
	"proffer/wire"
)

func newForger(seed uint64) *forger {
	lbs := []*testbed.Node{{Name: "lb1", Locator: testbed.LBLocator(1)}}
	return &forger{
		rng:      rand.New(rand.NewPCG(seed, 0)),
		ethernet: []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd},
		vip:      netip.MustParseAddrPort("[" + testbed.VIP + "]:80"),
		outside:  testbed.ClientAddr(1),
		lbs:      lbs, servers: nodes(3),
		live: []netip.AddrPort{netip.AddrPortFrom(testbed.ClientAddr(1), 5000)},
	}
}

// TestFloodsAreRealTCP: with another decoder's eyes, checksum included, or a stack
// would drop them for the wrong reason.
func TestFloodsAreRealTCP(t *testing.T) {
	f := newForger(1)
	alive := 0
	for i := range 1000 {
		packet := gopacket.NewPacket(f.flood(i), layers.LayerTypeEthernet, gopacket.Default)
		ip, _ := packet.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
		tcp, _ := packet.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if ip == nil || tcp == nil || packet.ErrorLayer() != nil {
			t.Fatalf("frame %d is %v", i, packet)
		}
		if !tcp.RST && !tcp.FIN || tcp.SYN || tcp.DstPort != 80 || ip.DstIP.String() != testbed.VIP {
			t.Errorf("frame %d: %+v", i, tcp)
		}
		if tcp.SrcPort == 5000 {
			alive++
		}
		if want := checksumOf(t, ip, tcp); tcp.Checksum != want {
			t.Fatalf("frame %d has checksum %#x, want %#x", i, tcp.Checksum, want)
		}
	}
	if alive < 300 || alive > 700 {
		t.Errorf("%d of 1000 frames are in the name of a live client", alive)
	}
}

func checksumOf(t *testing.T, ip *layers.IPv6, tcp *layers.TCP) uint16 {
	t.Helper()
	again := *tcp
	if err := again.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	out := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(out, gopacket.SerializeOptions{ComputeChecksums: true}, &again, gopacket.Payload(tcp.Payload))
	if err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint16(out.Bytes()[16:])
}

// TestSignalsAreForgedFromEverywhere: all functions, both kinds of sender; those
// that carry no tag from outside only.
func TestSignalsAreForgedFromEverywhere(t *testing.T) {
	f := newForger(2)
	inside, outside := map[wire.Function]int{}, map[wire.Function]int{}
	for i := range 20_000 {
		frame := f.signal(i)
		if len(frame) < wire.EthernetBytes+wire.IPv6Bytes {
			continue // cut off
		}
		ip := frame[wire.EthernetBytes:]
		from, to := netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
		if !testbed.SIDBlock().Contains(to) {
			continue // for the VIP
		}
		function := wire.ParseSID(to).Function
		if testbed.SIDBlock().Contains(from) {
			inside[function]++
		} else {
			outside[function]++
		}
	}
	for _, s := range wire.Signals() {
		fn := s.Function
		if in, out := inside[fn], outside[fn]; (in < 100) == s.Signed || out < 100 || !s.Signed && in > 0 {
			t.Errorf("%s: %d frames from inside, %d from outside", fn, in, out)
		}
	}
}
