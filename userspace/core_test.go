package userspace

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/dataplane/nf"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// The node of the tests, behind a link to its LB and a router: service 1 is user space alone, service 2
// a firewall, user space and source NAT, service 3 source NAT, user space and a rewriter.
var (
	client, remote   = netip.MustParseAddrPort("10.1.0.7:1000"), netip.MustParseAddrPort("198.51.100.9:53")
	client6, remote6 = netip.MustParseAddrPort("[2001:db8:1::7]:1000"), netip.MustParseAddrPort("[2001:db8:2::9]:53")
	public, public6  = netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8:f::1")
	nodeAddr, lbAddr = netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.1")
	lbMAC, routerMAC = topo.MAC{2, 0, 0, 0, 0, 0x42}, topo.MAC{2, 0, 0, 0, 0, 0x43}
	here             = topo.MAC{2, 0, 0, 0, 0, 0x44}
)

const alone, chained, behind, server, core = 1, 2, 3, 3, 1

// swapper swaps the first two words of payloads that begin with "swap", which keeps their checksum,
// drops "drop", and remembers all that it saw.
type swapper struct {
	mu   sync.Mutex
	seen []string
}

func (s *swapper) Packet(ip []byte, inward bool) Verdict {
	to, payload := netip.AddrFrom4([4]byte(ip[16:])), ip[wire.IPv4Bytes+wire.UDPBytes:]
	if ip[0]>>4 == 6 {
		to, payload = netip.AddrFrom16([16]byte(ip[24:])), ip[wire.IPv6Bytes+wire.UDPBytes:]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, fmt.Sprintf("%v %v %s", inward, to, payload))
	switch {
	case bytes.HasPrefix(payload, []byte("drop")):
		return Drop
	case bytes.HasPrefix(payload, []byte("swap")):
		payload[0], payload[1], payload[2], payload[3] = payload[2], payload[3], payload[0], payload[1]
		return Changed
	}
	return Pass
}

func (s *swapper) Counters() []dataplane.Counter { return nil }

// bed is a node with a core in user space, and the far end of its link.
type bed struct {
	*nf.Node
	user *Core
	wire int // a packet socket
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newBed(t *testing.T, functions map[int]Function) *bed {
	t.Helper()
	rig.NeedRoot(t)
	runtime.LockOSThread()
	must(t, unix.Unshare(unix.CLONE_NEWNET))
	must(t, os.WriteFile("/proc/sys/net/ipv4/conf/all/forwarding", []byte("1"), 0))
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lb", MTU: 1600, HardwareAddr: here[:]}, PeerName: "far", PeerMTU: 1600}))
	for _, name := range []string{"lo", "lb", "far"} {
		l, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(l))
	}
	l, err := netlink.LinkByName("lb")
	must(t, err)
	addr, err := netlink.ParseAddr(nodeAddr.String() + "/24")
	must(t, err)
	must(t, netlink.AddrAdd(l, addr))
	router := net.IPv4(192, 0, 2, 9)
	must(t, netlink.NeighAdd(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: router, HardwareAddr: routerMAC[:], State: netlink.NUD_PERMANENT}))
	must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: router, Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}}))
	cfg := &topo.Datapath{
		Server: server, Link: "lb", LBs: []netip.Addr{lbAddr}, Cores: 2, Idle: time.Hour, Linger: time.Hour,
		Clients: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8:1::/48")},
		Chains: []topo.Chain{
			{Service: alone, Functions: []topo.Function{topo.User{}}},
			{Service: chained, Functions: []topo.Function{
				topo.Firewall{Rules: []topo.Rule{{Allow: true}}}, topo.User{}, topo.SourceNAT{Public4: public, First: 2048, Ports: 64},
			}},
			{Service: behind, Functions: []topo.Function{
				topo.SourceNAT{Public4: public, Public6: public6, First: 4096, Ports: 64}, topo.User{}, topo.Rewriter{From: "abc", To: "xyz"},
			}},
		},
	}
	b := new(bed)
	b.Node, err = nf.New(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, b.Node.Close()) })
	must(t, b.SetNextHop(0, lbMAC))
	b.user, err = Open(cfg, core)
	must(t, err)
	t.Cleanup(func() { must(t, b.user.Close()) })
	for service, f := range functions {
		b.user.functions[service] = f
	}
	must(t, b.user.Join(b.Join))
	must(t, b.Attach())
	b.listen(t)
	return b
}

// listen opens the socket at the far end. Redirected frames reach a veth with an XDP program.
func (b *bed) listen(t *testing.T) {
	t.Helper()
	far, err := net.InterfaceByName("far")
	must(t, err)
	pass, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	must(t, err)
	on, err := link.AttachXDP(link.XDPOptions{Program: pass, Interface: far.Index})
	must(t, err)
	t.Cleanup(func() { on.Close(); pass.Close() })
	b.wire = packetSocket(t, far.Index)
}

func packetSocket(t *testing.T, index int) int {
	t.Helper()
	all := int(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL)))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: index}))
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}))
	must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20))
	return fd
}

// polling lets the core work until the test ends.
func (b *bed) polling(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- b.user.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func (b *bed) send(t *testing.T, frame []byte) {
	t.Helper()
	write(t, b.wire, frame)
}

func write(t *testing.T, fd int, frame []byte) {
	t.Helper()
	_, err := unix.Write(fd, frame)
	must(t, err)
}

// receive returns the next frame that the node sends.
func (b *bed) receive(t *testing.T) []byte {
	t.Helper()
	frame := make([]byte, 2048)
	for {
		n, from, err := unix.Recvfrom(b.wire, frame, 0)
		must(t, err)
		at := from.(*unix.SockaddrLinklayer)
		if at.Pkttype != unix.PACKET_OUTGOING && frame[12] == 8 && frame[13] == 0 { // IPv4, not our own
			return frame[:n]
		}
	}
}

func to(service int) wire.Tunnel {
	return wire.Tunnel{
		LinkTo: here, LinkFrom: lbMAC, From: lbAddr, To: nodeAddr, Flow: 0x0123456789abcdef,
		Instance: wire.Instance{Server: server, Core: core, Service: service},
	}
}

func around(w wire.Tunnel, packet []byte) []byte { return rig.Around(w, packet, public, public6) }

func datagram(from, to netip.AddrPort, payload string) []byte {
	return wire.IP{Source: from.Addr(), Destination: to.Addr(), HopLimit: 50}.UDP(from.Port(), to.Port(), []byte(payload))
}

func (b *bed) counter(t *testing.T, name string) uint64 {
	t.Helper()
	mine, err := b.Counters()
	must(t, err)
	users, err := b.user.Counters()
	must(t, err)
	for _, c := range append(mine, users...) {
		if c.Name == name {
			return c.Value
		}
	}
	t.Fatalf("there is no counter %s", name)
	return 0
}

// eventually waits for a counter.
func (b *bed) eventually(t *testing.T, name string, want uint64) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%s is %d", name, want), func() bool { return b.counter(t, name) == want })
}

// TestUserSpace: real packets of a chain reach user space and come back: unchanged, changed, or not at
// all; kernel functions before and after it do their part, in both directions.
func TestUserSpace(t *testing.T) {
	f := new(swapper)
	b := newBed(t, map[int]Function{alone: f, chained: f})
	b.polling(t)
	b.send(t, around(to(alone), datagram(client, remote, "plain")))
	want := datagram(client, remote, "plain")
	want[8]--
	binary.BigEndian.PutUint16(want[10:], 0)
	binary.BigEndian.PutUint16(want[10:], wire.Checksum(want[:wire.IPv4Bytes]))
	if got := b.receive(t); !bytes.Equal(got, wire.Frame(routerMAC, here, want)) {
		t.Errorf("unchanged:\n%x, want\n%x", got, wire.Frame(routerMAC, here, want))
	}
	b.send(t, around(to(alone), datagram(client, remote, "drop me")))
	b.send(t, around(to(alone), datagram(client, remote, "swapped")))
	if got, want := b.receive(t), around(rig.Back(to(alone)), datagram(client, remote, "apswped")); !bytes.Equal(got, want) {
		t.Errorf("changed:\n%x, want\n%x", got, want)
	}
	b.send(t, around(to(chained), datagram(client, remote, "question")))
	tunnel, question, err := wire.ParseTunnel(b.receive(t))
	must(t, err)
	mapped := netip.AddrPortFrom(public, binary.BigEndian.Uint16(question[wire.IPv4Bytes:]))
	if tunnel != rig.Back(to(chained)) || !bytes.Equal(question, datagram(mapped, remote, "question")) || mapped.Port() < 2048+64 || mapped.Port() >= 2048+128 {
		t.Errorf("question: %+v around %x", tunnel, question)
	}
	b.send(t, around(to(chained), datagram(remote, mapped, "swap it")))
	if got, want := b.receive(t), around(rig.Back(to(chained)), datagram(remote, client, "apsw it")); !bytes.Equal(got, want) {
		t.Errorf("answer:\n%x, want\n%x", got, want)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if got, want := fmt.Sprint(f.seen), fmt.Sprint([]string{
		"false 198.51.100.9 plain", "false 198.51.100.9 drop me", "false 198.51.100.9 swapped", "false 198.51.100.9 question", "true 10.1.0.7 swap it",
	}); got != want {
		t.Errorf("the function saw %s, want %s", got, want)
	}
	for name, want := range map[string]uint64{"user_given": 5, "user_back": 4, "user_lost": 0, "user_malformed": 0, "firewall_admitted": 1, "nat_bound": 1} {
		if got := b.counter(t, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}

// TestBehindNAT: packets that NAT gave a public source before user space are outward there and in the rest
// of the chain, and their answers inward; one without a binding goes back as it came.
func TestBehindNAT(t *testing.T) {
	f := new(swapper)
	b := newBed(t, map[int]Function{behind: f})
	b.polling(t)
	var want []string
	for _, c := range []struct{ client, remote, public netip.AddrPort }{
		{client, remote, netip.AddrPortFrom(public, 0)},
		{client6, remote6, netip.AddrPortFrom(public6, 0)},
	} {
		b.send(t, around(to(behind), datagram(c.client, c.remote, "swap abc")))
		tunnel, question, err := wire.ParseTunnel(b.receive(t))
		must(t, err)
		mapped := netip.AddrPortFrom(c.public.Addr(), binary.BigEndian.Uint16(question[len(question)-len("swap abc")-wire.UDPBytes:]))
		if tunnel != rig.Back(to(behind)) || !bytes.Equal(question, datagram(mapped, c.remote, "apsw xyz")) || mapped.Port() < 4096+64 || mapped.Port() >= 4096+128 {
			t.Errorf("question: %+v around %x", tunnel, question)
		}
		b.send(t, around(to(behind), datagram(c.remote, mapped, "swap abc")))
		if got, want := b.receive(t), around(rig.Back(to(behind)), datagram(c.remote, c.client, "apsw xyz")); !bytes.Equal(got, want) {
			t.Errorf("answer:\n%x, want\n%x", got, want)
		}
		stray := datagram(c.remote, netip.AddrPortFrom(c.public.Addr(), 5000), "plain")
		b.send(t, around(to(behind), stray))
		unbound := rig.Back(to(behind))
		unbound.Message, unbound.Instance = wire.MessageUnbound, wire.Instance{Server: server}
		if got, want := b.receive(t), around(unbound, stray); !bytes.Equal(got, want) {
			t.Errorf("without a binding:\n%x, want\n%x", got, want)
		}
		want = append(want, fmt.Sprintf("false %v swap abc", c.remote.Addr()), fmt.Sprintf("true %v swap xyz", mapped.Addr()), fmt.Sprintf("true %v plain", mapped.Addr()))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := fmt.Sprint(f.seen); got != fmt.Sprint(want) {
		t.Errorf("the function saw %s, want %s", got, want)
	}
	for name, want := range map[string]uint64{"user_given": 6, "user_back": 6, "user_malformed": 0, "nat_bound": 2, "unbound": 2, "drop_nat_unknown": 0} {
		if got := b.counter(t, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}

// TestByteCounter: the function that ships counts packets and bytes of both directions.
func TestByteCounter(t *testing.T) {
	b := newBed(t, nil)
	b.polling(t)
	for _, payload := range []string{"1", "12"} {
		b.send(t, around(to(alone), datagram(client, remote, payload)))
		b.send(t, around(to(alone), datagram(remote, client, payload)))
	}
	b.eventually(t, "user_back", 4)
	if text := fmt.Sprint(b.user.functions[alone].Counters()); text != "[{counter_packets_outward 2} {counter_bytes_outward 59} {counter_packets_inward 2} {counter_bytes_inward 59}]" {
		t.Errorf("counted %s", text)
	}
}

// TestTooSlow: packets beyond the socket's memory are lost and counted, and afterwards all memory is
// there again. A link's ring has room for a piece.
func TestTooSlow(t *testing.T) {
	b := newBed(t, nil)
	const piece = 32
	arrived := func() uint64 { return uint64(atomic.LoadUint32(b.user.socket.receive.producer)) }
	for sent := uint64(0); sent < 2*chunks; {
		for range piece {
			b.send(t, around(to(alone), datagram(client, remote, "too many")))
		}
		sent += piece
		rig.Eventually(t, "a piece is in the socket, or lost", func() bool { return arrived()+b.counter(t, "user_lost") == sent })
	}
	if n, lost := arrived(), b.counter(t, "user_lost"); n != chunks || lost != chunks {
		t.Errorf("%d packets are in the socket and %d lost, want %d of each", n, lost, chunks)
	}
	b.polling(t)
	rig.Eventually(t, "the socket is empty", func() bool {
		s := b.user.socket
		return atomic.LoadUint32(s.receive.consumer) == chunks && atomic.LoadUint32(s.completed.consumer) == chunks
	})
	for back := b.counter(t, "user_back"); arrived() < 4*chunks; {
		for range piece {
			b.send(t, around(to(alone), datagram(client, remote, "again")))
		}
		back += piece
		rig.Eventually(t, "a piece is back", func() bool { return b.counter(t, "user_back") >= back })
	}
}

// TestForeignFrames: frames of others on the links to user space change nothing.
func TestForeignFrames(t *testing.T) {
	b := newBed(t, nil)
	b.polling(t)
	fd := packetSocket(t, b.user.pair.near.Index)
	bad := to(alone)
	bad.Instance.Service = 77
	for _, frame := range [][]byte{bad.Around(datagram(client, remote, "another service")), around(to(alone), []byte{0x55, 1, 2})} {
		write(t, fd, frame)
	}
	b.eventually(t, "user_malformed", 2)
}
