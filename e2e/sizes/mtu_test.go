package sizes

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
	"proffer/topo"
	"proffer/wire"
)

// TestSegmentsLeaveRoom: servers offer what their link carries, the LB lowers
// it, so that no segment of a client is too big for its segment list.
func TestSegmentsLeaveRoom(t *testing.T) {
	const streams, size = 3, 2_000_000
	first := 20000 // port; no case meets another's connections
	bed := kit.Up(t, testbed.Config{Servers: 5})
	kit.Bulks(t, bed, bed.Servers...)
	for _, c := range []struct {
		choices int
		wire    topo.Wire
		vip     string
	}{
		{2, topo.Encap, testbed.VIP},
		{4, topo.Encap, testbed.VIP},
		{4, topo.Insert, testbed.VIP},
		{4, topo.Encap, testbed.VIP4},
	} {
		t.Run(fmt.Sprintf("%s %d %s", c.vip, c.choices, c.wire), func(t *testing.T) {
			s := kit.Settings(t, "hunt:static:1")
			s.Choices = c.choices
			vip := netip.MustParseAddr(c.vip)
			kit.FamilyOf(&s, vip)
			family := s.LB
			s.LB = func(lb *topo.LB) { family(lb); lb.Services[0].Wire = c.wire }
			farm := kit.Start(t, bed, s)
			first += streams
			up := kit.Begin(t, bed, vip, true, first, streams)
			down := kit.Begin(t, bed, vip, false, 10000+first, streams)
			kit.Move(t, "upwards", up, size)
			kit.Move(t, "downwards", down, size)
			kit.Finish(t, "upwards", up)
			kit.Finish(t, "downwards", down)
			lb := bed.LBs[0]
			if n := kit.Counter(t, farm, "mss_clamped", lb); n < 2*streams {
				t.Errorf("the LB lowered %d offers of a size, want %d", n, 2*streams)
			}
			for _, name := range []string{"too_big", "drop_too_big"} {
				if n := kit.Counter(t, farm, name, lb); n > 0 {
					t.Errorf("%s: %d of a client's packets left no room", name, n)
				}
			}
		})
	}
}

// TestUploadLearnsItsSize: the answers of a `single` service do not come by the
// LB, so that it cannot lower a server's offer: it informs the client instead.
func TestUploadLearnsItsSize(t *testing.T) {
	const size = 3_000_000
	hash := sha256.New()
	var content bytes.Buffer
	if _, err := io.Copy(io.MultiWriter(hash, &content), responder.Bytes(size)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "upload")
	if err := os.WriteFile(file, content.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{kit.URL, "http://" + testbed.VIP4} {
		t.Run(at, func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 2})
			serveBoth(t, bed)
			s := kit.Settings(t, "single")
			if at != kit.URL {
				kit.FamilyOf(&s, bed.VIP4)
			}
			farm := kit.Start(t, bed, s)
			c := kit.Record(t, bed)
			got := kit.In(t, bed.Client, "curl", "-sS", "--fail", "-T", file, at+"/bytes")
			if want := fmt.Sprintf("%x %d\n", hash.Sum(nil), size); got != want {
				t.Errorf("uploaded: %q, want %q", got, want)
			}
			if n := kit.Counter(t, farm, "too_big", bed.LBs[0]); n == 0 {
				t.Error("the LB reported no packet as too big")
			}
			if n := kit.Counter(t, farm, "mss_clamped", bed.LBs[0]); n > 0 {
				t.Errorf("%d SYN-ACKs came by the LB", n)
			}
			wantQuotes(t, bed, c.Stop(t), testbed.MTU-kit.IPv6)
			judgeErrors(t, c.File)
		})
	}
}

// serveBoth is serve on the IPv4 VIP, too.
func serveBoth(t *testing.T, bed *testbed.Bed) {
	t.Helper()
	servers := kit.Serve(t, bed)
	for i, n := range bed.Servers {
		l, err := n.Listen("tcp4", netip.AddrPortFrom(bed.VIP4, testbed.Port).String())
		if err != nil {
			t.Fatal(err)
		}
		go servers.All[i].Serve(l) // ends with Close
	}
}

// tooBig is an ICMP message that a packet was too big.
type tooBig struct {
	mtu   int
	quote []byte
}

// readTooBig reads one from an Ethernet frame.
func readTooBig(b []byte) (m tooBig, ok bool) {
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.NoCopy)
	if six, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok && six.TypeCode.Type() == layers.ICMPv6TypePacketTooBig {
		return tooBig{int(binary.BigEndian.Uint32(six.Payload)), six.Payload[4:]}, true
	}
	needed := layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeFragmentationNeeded)
	if four, ok := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok && four.TypeCode == needed {
		return tooBig{int(four.Seq), four.Payload}, true // the MTU's place (RFC 1191 §4)
	}
	return tooBig{}, false
}

// wantQuotes wants each packet too big of the LB to state this MTU and to quote a
// packet that the LB got, as long a part of it as is allowed (RFC 4443 §2.4,
// RFC 1812 §4.3.2.3), and not one without need.
func wantQuotes(t *testing.T, bed *testbed.Bed, frames []kit.Frame, mtu int) {
	t.Helper()
	messages := 0
	var got [][]byte
	for _, f := range frames {
		if f.Link != bed.LBs[0].Link {
			continue
		}
		if f.ToNode {
			got = append(got, f.Bytes[kit.Ethernet:])
			continue
		}
		m, ok := readTooBig(f.Bytes)
		if !ok {
			continue
		}
		messages++
		at := slices.IndexFunc(got, func(p []byte) bool { return bytes.HasPrefix(p, m.quote) })
		whole := 576 - 28
		if m.quote[0]>>4 == 6 {
			whole = 1280 - 48
		}
		if at < 0 || len(m.quote) != whole || len(got[at]) <= mtu || m.mtu != mtu {
			t.Errorf("the LB says that %d bytes fit, want %d, and quotes %d bytes, want %d, of packet %d", m.mtu, mtu, len(m.quote), whole, at)
		}
	}
	if messages == 0 {
		t.Error("no word of a packet too big left the LB")
	}
}

// judgeErrors lets tshark decode the ICMP errors of a capture. What they quote
// is cut off, so only their own checksums can be right.
func judgeErrors(t *testing.T, file string) {
	t.Helper()
	out, err := exec.Command(kit.Program(t, "tshark"), "-r", file, "-n", "-d", "tcp.port==0-65535,data", "-Y", "icmpv6.type == 2 || icmp.type == 3",
		"-T", "fields", "-E", "separator=|", "-E", "occurrence=f", "-e", "icmpv6.checksum.status", "-e", "icmp.checksum.status",
		"-e", "ip.checksum.status", "-e", "frame.protocols", "-e", "_ws.expert.message", "-o", "ip.check_checksum:TRUE").Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, line := range lines {
		f := strings.Split(line, "|")
		six, four := "1||", "|1|1" // good
		if sums := strings.Join(f[:3], "|"); sums != six && sums != four || strings.Contains(line, "malformed") || f[4] != "" {
			t.Errorf("tshark finds fault with an error message: %q", line)
		}
	}
}

// TestDatagramsAtTheEdge: a datagram with whatever length goes on inside the
// MTU, or the client gets packet too big: none disappears.
func TestDatagramsAtTheEdge(t *testing.T) {
	const shortest = 1400
	const dns = 53
	for _, dispatch := range []topo.Dispatch{topo.Single, topo.Hunt} {
		t.Run(dispatch.String(), func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 4})
			s := kit.Settings(t, "hunt:always")
			s.LB = func(lb *topo.LB) {
				svc := &lb.Services[0]
				svc.VIP.Protocol, svc.VIP.Port, svc.Dispatch = topo.UDP, dns, dispatch
			}
			farm := kit.Start(t, bed, s)
			lb := bed.LBs[0]
			c := kit.Record(t, bed)
			var packets [][]byte
			for size := shortest; size <= testbed.MTU; size++ {
				packets = append(packets, datagram(bed, 10000+size, dns, size))
			}
			kit.SendRaw(t, bed, packets...)
			seen := func() uint64 {
				return kit.Counter(t, farm, "deliver", lb) + kit.Counter(t, farm, "offer_datagram", lb) + kit.Counter(t, farm, "too_big", lb)
			}
			kit.EventuallyIs(t, "datagrams that went on or were answered", uint64(len(packets)), seen)
			told, on := 0, 0
			for _, f := range c.Stop(t) {
				if f.Link != lb.Link || f.ToNode {
					continue
				}
				if len(f.Bytes) > testbed.MTU+kit.Ethernet {
					t.Errorf("a frame of %d bytes leaves the LB", len(f.Bytes))
				}
				if _, ok := readTooBig(f.Bytes); ok {
					told++
				} else if (f.Encapsulated() || f.Ip.Next == kit.Routing) && bytes.Contains(f.Bytes, kit.Unused.AsSlice()) { // and no check of the LB's own
					on++
				}
			}
			t.Logf("%d datagrams: %d went on, %d were too big", len(packets), on, told)
			if told+on != len(packets) || told == 0 || on == 0 {
				t.Errorf("%d datagrams went on and the client got packet too big of %d, of %d", on, told, len(packets))
			}
			judgeErrors(t, c.File)
		})
	}
}

// datagram is a UDP packet from the unused address, so many bytes long with its IPv6 header.
func datagram(bed *testbed.Bed, from, to, size int) []byte {
	payload := bytes.Repeat([]byte{'x'}, size-wire.IPv6Bytes-wire.UDPBytes)
	return wire.IP{Source: kit.Unused, Destination: bed.VIP, HopLimit: wire.DefaultHopLimit}.UDP(uint16(from), uint16(to), payload)
}
