package kit

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
	"proffer/topo"
	"proffer/wire"
)

// The service in IPv4 travels like any other, as what is inside (next header 4).

const (
	URL4   = "http://" + testbed.VIP4
	inIPv4 = 4 // next header, RFC 2473 §3.3
	ipv4   = 20
)

// serving returns settings whose service is at another VIP.
func serving(s farmrun.Settings, vip topo.VIP) farmrun.Settings {
	s = Carried(s, func(svc *topo.Service) { svc.VIP = vip })
	s.Agent = func(_ *testbed.Node, a *topo.Agent) { a.Services[0].VIP = vip }
	return s
}

// Settings4 are settings for the VIP in IPv4.
func Settings4(t *testing.T, bed *testbed.Bed, policy string) farmrun.Settings {
	t.Helper()
	return serving(Settings(t, policy), topo.VIP{Addr: bed.VIP4, Port: testbed.Port})
}

// ServeAt runs a load server on an address of each node until the test ends.
func ServeAt(t *testing.T, vip netip.Addr, nodes ...*testbed.Node) {
	t.Helper()
	clock, err := responder.NewClock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { clock.Close() })
	for _, n := range nodes {
		l, err := n.Listen("tcp", netip.AddrPortFrom(vip, testbed.Port).String())
		if err != nil {
			t.Fatal(err)
		}
		server := responder.NewServer(n.Name, responder.Machine{Cores: 2, Workers: 32}, clock)
		t.Cleanup(func() { server.Close() })
		go server.Serve(l) // ends with Close
	}
}

// packet4 is an IPv4 packet on a link.
type packet4 struct {
	frame    *Frame
	overhead int // of what stands before it
	bytes    []byte
}

// read4 returns the TCP packet in a frame, plain or encapsulated.
func read4(f *Frame) (p packet4, ok bool) {
	rest, next := f.Bytes[Ethernet:], uint8(0)
	switch binary.BigEndian.Uint16(f.Bytes[12:]) {
	case unix.ETH_P_IP:
		next = inIPv4
	case unix.ETH_P_IPV6:
		rest, next = rest[IPv6:], f.Ip.Next
		if next == Routing {
			_, next, rest = segments(rest)
		}
	}
	if next != inIPv4 || len(rest) < ipv4 || rest[9] != tcp {
		return p, false
	}
	return packet4{f, len(f.Bytes) - Ethernet - len(rest), rest}, true
}

func (p packet4) ttl() uint8           { return p.bytes[8] }
func (p packet4) tos() uint8           { return p.bytes[1] }
func (p packet4) flags() uint8         { return p.bytes[ipv4+13] }
func (p packet4) source() netip.Addr   { return netip.AddrFrom4([4]byte(p.bytes[12:])) }
func (p packet4) encapsulated() bool   { return p.overhead > 0 }
func (p packet4) has(flags uint8) bool { return p.flags()&flags == flags }

// text is the packet without what changes on its way: the TTL, the checksum over
// it, and of a SYN-ACK the MSS and its checksum.
func (p packet4) text() string {
	b := slices.Clone(p.bytes)
	b[8] = 0
	clear(b[10:12])
	if p.has(wire.SYN | wire.ACK) {
		clear(b[ipv4+16 : ipv4+18])
		clear(b[ipv4+22 : ipv4+24])
	}
	return string(b)
}

// on4 returns the IPv4 packets on a node's link in one direction, but for the LB's checks.
func (w *Recorded) on4(n *testbed.Node, toNode bool) (found []packet4) {
	check := netip.AddrFrom4([4]byte{192, 0, 0, 8}) // in the place of a client in the LB's own checks
	for i := range w.Frames {
		if f := &w.Frames[i]; f.Link == n.Link && f.ToNode == toNode {
			if p, ok := read4(f); ok && p.source() != check {
				found = append(found, p)
			}
		}
	}
	return found
}

// wantForwarded4: each packet to the VIP leaves the LB once, inside, one hop on,
// and visits as many servers as the policy makes it.
func (w *Recorded) WantForwarded4(t *testing.T, choices int) {
	t.Helper()
	lb := w.Bed.LBs[0]
	waiting, classes, offers := map[string][]packet4{}, map[uint8]int{}, 0
	for _, p := range w.on4(lb, true) {
		if !p.encapsulated() {
			waiting[p.text()] = append(waiting[p.text()], p)
		}
	}
	for _, p := range w.on4(lb, false) {
		if !p.encapsulated() {
			continue
		}
		came := waiting[p.text()]
		if len(came) == 0 {
			t.Fatalf("the LB sent what it did not get: % x", p.bytes)
		}
		waiting[p.text()] = came[1:]
		classes[p.tos()]++
		if p.ttl() != came[0].ttl()-1 || p.frame.Ip.Class != p.tos() || p.frame.Ip.hops != 64 {
			t.Errorf("TTL %d became %d, class %#x is %#x outside, with %d hops", came[0].ttl(), p.ttl(), p.tos(), p.frame.Ip.Class, p.frame.Ip.hops)
		}
		want := IPv6
		if p.has(wire.SYN) {
			want += 8 + 16*(choices-1)
			offers++
		}
		if p.overhead != want {
			t.Errorf("a packet with flags %#x is %d bytes longer, want %d", p.flags(), p.overhead, want)
		}
	}
	for _, left := range waiting {
		if len(left) > 0 {
			t.Errorf("the LB kept %d packets: % x", len(left), left[0].bytes)
		}
	}
	visits := 0
	for _, n := range w.Bed.Servers {
		for _, p := range w.on4(n, true) {
			if p.encapsulated() && p.has(wire.SYN) {
				visits++
			}
		}
	}
	if offers == 0 || visits != offers*choices {
		t.Errorf("%d offers visited %d servers, want %d each", offers, visits, choices)
	}
	if classes[0] == 0 || classes[Class] == 0 {
		t.Errorf("packets by class: %v: both kinds were to be sent", classes)
	}
}

// wantAnswers4: servers' SYN-ACKs and FINs come to the client by way of the LB,
// one hop on and otherwise the same but for the MSS; data comes straight.
func (w *Recorded) WantAnswers4(t *testing.T) {
	t.Helper()
	lb := w.Bed.LBs[0]
	told := map[string][]packet4{}
	for _, p := range w.on4(lb, true) {
		if p.encapsulated() {
			if p.overhead != IPv6 {
				t.Errorf("a signal is %d bytes longer, want %d", p.overhead, IPv6)
			}
			told[p.text()] = append(told[p.text()], p)
		}
	}
	if len(told) == 0 {
		t.Error("no server signalled to the LB")
	}
	for _, p := range w.on4(lb, false) {
		if p.encapsulated() {
			continue
		}
		came := told[p.text()]
		if len(came) == 0 || p.ttl() != came[0].ttl()-1 {
			t.Fatalf("the LB sent the client % x, which it received %d times", p.bytes, len(came))
		}
		told[p.text()] = came[1:]
	}
	direct := 0
	for _, n := range w.Bed.Servers {
		for _, p := range w.on4(n, false) {
			if !p.encapsulated() && p.source() == w.Bed.VIP4 {
				direct++
			}
		}
	}
	if direct == 0 {
		t.Error("no answer went straight to the client")
	}
	for _, p := range w.on4(w.Bed.Client, true) {
		if p.encapsulated() {
			t.Errorf("the client got an encapsulated packet: % x", p.frame.Bytes)
		}
	}
}

// WantGood lets tshark check every checksum of one kind: all are right.
func WantGood(t *testing.T, file, field string, atLeast int) {
	t.Helper()
	cmd := exec.Command(Program(t, "tshark"), "-r", file, "-n", "-T", "fields", "-e", field,
		"-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v: %s", err, &stderr)
	}
	good := 0
	for _, value := range strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' || r == ',' }) {
		const isGood = "1"
		if value != isGood {
			t.Errorf("tshark says %s %s", field, value)
			continue
		}
		good++
	}
	if good < atLeast {
		t.Errorf("%d packets with a good %s, want at least %d", good, field, atLeast)
	}
}
