package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
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
	url4   = "http://" + testbed.VIP4
	inIPv4 = 4 // next header, RFC 2473 §3.3
	ipv4   = 20
)

// serving returns settings whose service is at another VIP.
func serving(s farmrun.Settings, vip topo.VIP) farmrun.Settings {
	s = carried(s, func(svc *topo.Service) { svc.VIP = vip })
	s.Agent = func(_ *testbed.Node, a *topo.Agent) { a.Services[0].VIP = vip }
	return s
}

// settings4 are settings for the VIP in IPv4.
func settings4(t *testing.T, bed *testbed.Bed, policy string) farmrun.Settings {
	t.Helper()
	return serving(settings(t, policy), topo.VIP{Addr: bed.VIP4, Port: testbed.Port})
}

// serveAt runs a load server on an address of each node until the test ends.
func serveAt(t *testing.T, vip netip.Addr, nodes ...*testbed.Node) {
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
	frame    *frame
	overhead int // of what stands before it
	bytes    []byte
}

// read4 returns the TCP packet in a frame, plain or encapsulated.
func read4(f *frame) (p packet4, ok bool) {
	rest, next := f.bytes[ethernet:], uint8(0)
	switch binary.BigEndian.Uint16(f.bytes[12:]) {
	case unix.ETH_P_IP:
		next = inIPv4
	case unix.ETH_P_IPV6:
		rest, next = rest[ipv6:], f.ip.next
		if next == routing {
			_, next, rest = segments(rest)
		}
	}
	if next != inIPv4 || len(rest) < ipv4 || rest[9] != tcp {
		return p, false
	}
	return packet4{f, len(f.bytes) - ethernet - len(rest), rest}, true
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
func (w *recorded) on4(n *testbed.Node, toNode bool) (found []packet4) {
	check := netip.AddrFrom4([4]byte{192, 0, 0, 8}) // in the place of a client in the LB's own checks
	for i := range w.frames {
		if f := &w.frames[i]; f.link == n.Link && f.toNode == toNode {
			if p, ok := read4(f); ok && p.source() != check {
				found = append(found, p)
			}
		}
	}
	return found
}

// TestIPv4 reads from the links what an LB makes of IPv4 packets.
func TestIPv4(t *testing.T) {
	const conns = 40
	bed := up(t, testbed.Config{Servers: 3})
	serveAt(t, bed.VIP4, bed.Servers...)
	s := settings4(t, bed, "hunt:static:0")
	s.Choices = 3
	farm := start(t, bed, s)
	c := record(t, bed)
	var group sync.WaitGroup
	for k := range conns {
		group.Go(func() {
			if err := request4(t.Context(), bed.Client, k%2*class); err != nil {
				t.Errorf("connection %d: %v", k, err)
			}
		})
	}
	group.Wait()
	wantMegabytes(t, bed, url4)
	settled(t, bed)
	w := recorded{bed, c.stop(t)}
	w.wantForwarded4(t, 3)
	w.wantAnswers4(t)
	if passed := counter(t, farm, "pass_on_busy", bed.Servers...); passed < 2*conns {
		t.Errorf("%d offers passed on, want at least %d", passed, 2*conns)
	}
	judge(t, c.file, 1000)
	wantGood(t, c.file, "ip.checksum.status", 1000)
}

// request4 makes one request to the VIP in IPv4, in packets of one class.
func request4(ctx context.Context, n *testbed.Node, class int) error {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		outer := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, class)
		})
		if outer != nil {
			return outer
		}
		return err
	}}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = n.Do(func() error {
			c, err = d.DialContext(ctx, network, address)
			return err
		})
		return c, err
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url4+"/", nil)
	if err != nil {
		return err
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", answer.Status)
	}
	return nil
}

// wantForwarded4: each packet to the VIP leaves the LB once, inside, one hop on,
// and visits as many servers as the policy makes it.
func (w *recorded) wantForwarded4(t *testing.T, choices int) {
	t.Helper()
	lb := w.bed.LBs[0]
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
		if p.ttl() != came[0].ttl()-1 || p.frame.ip.class != p.tos() || p.frame.ip.hops != 64 {
			t.Errorf("TTL %d became %d, class %#x is %#x outside, with %d hops", came[0].ttl(), p.ttl(), p.tos(), p.frame.ip.class, p.frame.ip.hops)
		}
		want := ipv6
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
	for _, n := range w.bed.Servers {
		for _, p := range w.on4(n, true) {
			if p.encapsulated() && p.has(wire.SYN) {
				visits++
			}
		}
	}
	if offers == 0 || visits != offers*choices {
		t.Errorf("%d offers visited %d servers, want %d each", offers, visits, choices)
	}
	if classes[0] == 0 || classes[class] == 0 {
		t.Errorf("packets by class: %v: both kinds were to be sent", classes)
	}
}

// wantAnswers4: servers' SYN-ACKs and FINs come to the client by way of the LB,
// one hop on and otherwise the same but for the MSS; data comes straight.
func (w *recorded) wantAnswers4(t *testing.T) {
	t.Helper()
	lb := w.bed.LBs[0]
	told := map[string][]packet4{}
	for _, p := range w.on4(lb, true) {
		if p.encapsulated() {
			if p.overhead != ipv6 {
				t.Errorf("a signal is %d bytes longer, want %d", p.overhead, ipv6)
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
	for _, n := range w.bed.Servers {
		for _, p := range w.on4(n, false) {
			if !p.encapsulated() && p.source() == w.bed.VIP4 {
				direct++
			}
		}
	}
	if direct == 0 {
		t.Error("no answer went straight to the client")
	}
	for _, p := range w.on4(w.bed.Client, true) {
		if p.encapsulated() {
			t.Errorf("the client got an encapsulated packet: % x", p.frame.bytes)
		}
	}
}

// wantGood lets tshark check every checksum of one kind: all are right.
func wantGood(t *testing.T, file, field string, atLeast int) {
	t.Helper()
	cmd := exec.Command(program(t, "tshark"), "-r", file, "-n", "-T", "fields", "-e", field,
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

// TestIPv4Recovers: flows in IPv4 go on over another LB.
func TestIPv4Recovers(t *testing.T) {
	const flows = 100
	bed := up(t, testbed.Config{Servers: 4, LBs: 2})
	echoes(t, bed, bed.Servers...)
	farm := start(t, bed, settings4(t, bed, "hunt:static:0"))
	announce(t, bed, bed.LBs[0])
	f := openTo(t, bed, bed.VIP4, bed.ClientAddrs4, 20000, flows)
	before := f.Servers()
	announce(t, bed, bed.LBs[1])
	alive(t, "over the other LB", f)
	alive(t, "again", f)
	if after := f.Servers(); !slices.Equal(before, after) {
		t.Errorf("flows were answered by %v, then %v", before, after)
	}
	if n := counter(t, farm, "stickiness_recovered", bed.LBs[1]); n != flows {
		t.Errorf("%d flows recovered, want %d", n, flows)
	}
	if n := counter(t, farm, "steer", bed.LBs[1]); n < flows {
		t.Errorf("%d packets steered, want at least %d", n, flows)
	}
	wantNoStray(t, farm)
}
