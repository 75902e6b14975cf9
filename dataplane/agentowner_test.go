package dataplane

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/policy"
	"proffer/topo"
)

// testCookie: a listener that remembers no handshake knows its cookie; the flow
// is ours only if this agent accepted its offer too.
func testCookie(t *testing.T, seen hits) {
	for _, c := range []struct {
		what   string
		client netip.Addr
		vip    netip.Addr
	}{
		{"IPv6", netip.MustParseAddr("2001:db8:c::9"), vipAddr},
		{"IPv4", netip.MustParseAddr("192.0.2.9"), vip4},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := newAgentRig(t, seen, offering(huntPort, func(o *topo.Offering) { o.VIP.Addr = c.vip }))
			always := []byte("2") // tcp_syncookies: even if there is room
			if err := os.WriteFile("/proc/sys/net/ipv4/tcp_syncookies", always, 0o644); err != nil {
				t.Fatal(err)
			}
			listenAt(t, netip.AddrPortFrom(c.vip, huntPort), 128)
			p := inward(huntPort, syn)
			p.src, p.dst = netip.AddrPortFrom(c.client, 40000), netip.AddrPortFrom(c.vip, huntPort)
			opening := p
			p.ack = handshake(t, p) + 1
			p.flags, p.seq = ack, p.seq+1
			generation := policy.Generation(opening.seq)
			s := to(p, generation, 0xa5)
			r.send(t, s.frame()).is(t, "no offer of ours", xdpTX, s.returned(), "give_back_not_mine")
			r.accept(t, opening)
			wrong := p
			wrong.ack += 1000 // its lowest bits say which MSS
			r.send(t, to(wrong, generation, 0xa5).frame()).is(t, "another cookie", xdpPass, delivered(wrong), "steered_embryonic")
			late := p // what the cookie was made of has changed
			late.seq++
			r.send(t, to(late, generation, 0xa5).frame()).is(t, "not its first packet", xdpPass, delivered(late), "steered_embryonic")
			r.send(t, s.frame()).is(t, "ours", xdpPass, delivered(p), "established", "acknowledged", "steered")
		})
	}
}

// listenAt opens a port of either family.
func listenAt(t testing.TB, at netip.AddrPort, backlog int) int {
	t.Helper()
	fd := socket(t, at)
	if err := unix.Listen(fd, backlog); err != nil {
		t.Fatal(err)
	}
	return fd
}

// handshake sends the SYN of p over the wire and returns the sequence number of
// the kernel's SYN-ACK. The client must not be local; this makes it a neighbour.
func handshake(t testing.TB, p packet) uint32 {
	t.Helper()
	protocol, l4 := unix.ETH_P_IPV6, atUpper
	if p.src.Addr().Is4() {
		protocol, l4 = unix.ETH_P_IP, 14+20
	}
	neighbour(t, p.src.Addr())
	fd := tap(t, uint16(protocol))
	if _, err := unix.Write(fd, innerTCP(p).delivered()); err != nil {
		t.Fatal(err)
	}
	for buffer := make([]byte, 2048); ; {
		n, err := unix.Read(fd, buffer)
		if err != nil {
			t.Fatalf("wait for the SYN-ACK: %v", err)
		}
		if n >= l4+20 && buffer[l4+13] == syn|ack {
			return binary.BigEndian.Uint32(buffer[l4+4:])
		}
	}
}

// tap is the far end of the wire, for frames of one protocol.
func tap(t testing.TB, protocol uint16) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(portBits(protocol)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: portBits(protocol), Ifindex: linkIndex(t, farEnd)}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// testRejected: the loser of two acceptances gets the client's RST, which ends
// its request socket; nothing that lives is ever reset.
func testRejected(t *testing.T, seen hits) {
	r := newAgentRig(t, seen, offering(huntPort), udpOffering())
	l := listen(t, huntPort, 128)
	opening := inward(huntPort, syn)
	opening.src = netip.MustParseAddrPort("[2001:db8:c::9]:40000")
	generation := policy.Generation(opening.seq)
	end := opening
	end.flags, end.seq = rst, opening.seq+1
	stale := func(what string, s sr) {
		t.Helper()
		r.send(t, s.frame()).is(t, what, xdpDrop, nil, "drop_reject_stale")
	}
	stale("of no flow", to(end, generation, reject))
	r.accept(t, opening)
	theirs := handshake(t, opening)
	stale("of another generation", to(end, generation+1, reject))
	for _, flags := range []byte{ack, syn, fin | ack} {
		other := end
		other.flags = flags
		stale(fmt.Sprintf("by flags %#02x", flags), to(other, generation, reject))
	}
	r.send(t, to(end, generation, reject).frame()).is(t, "of ours", xdpPass, delivered(end), "rejected")
	if _, known := r.conn(t, opening.flow()); known {
		t.Error("a rejected flow has an entry")
	}
	stale("again", to(end, generation, reject))
	if _, err := unix.Write(tap(t, unix.ETH_P_IPV6), delivered(end)); err != nil {
		t.Fatal(err)
	}
	first := opening
	first.flags, first.seq, first.ack = ack, opening.seq+1, theirs+1
	question := to(first, 0, 0xe5, 0xe5)
	eventually(t, "the request socket's end", func() bool { return r.run(t, question.frame()).action == xdpTX })

	reset(t, l)
	alive := inward(huntPort, syn)
	r.begin(t, alive)
	end = alive
	end.flags, end.seq = rst, alive.seq+1
	stale("of a full socket", to(end, generation, reject))
	r.acknowledge(t, alive)
	stale("of an established flow", to(end, generation, reject))

	datagram := inward(udpPort, 0)
	listenUDP(t, datagram.dst)
	in := innerUDP(datagram)
	r.send(t, toWith(in, 0, 0xcf).frame()).is(t, "datagram", xdpPass, in.delivered(), "accept_force")
	c, _ := r.conn(t, in.flow)
	stale("of a datagram", toWith(in, c.Generation, reject))
}

// TestRejectTimeWait: a flow in TIME_WAIT is not a request that lost.
func TestRejectTimeWait(t *testing.T) {
	r := newAgentRig(t, hits{}, offering(huntPort))
	p := inward(huntPort, syn)
	timeWait(t, listen(t, huntPort, 128), p)
	r.accept(t, p)
	p.flags = rst
	r.send(t, to(p, policy.Generation(p.seq), reject).frame()).is(t, "in TIME_WAIT", xdpDrop, nil, "drop_reject_stale")
}

// testOwnerTable: where no socket can be asked, the agent's own entries say whose
// a flow is, and the packet goes to who has the VIP.
func testOwnerTable(t *testing.T, seen hits) {
	guest := topo.MAC{2, 0, 0, 0, 9, 9}
	r := newAgentRig(t, seen, offering(huntPort, byTable, func(o *topo.Offering) { o.MAC = guest }))
	opening := inward(huntPort, syn)
	generation := policy.Generation(opening.seq)
	seenBy := func(p packet) []byte { return innerTCP(p).frame(guest, routerMAC) }
	r.send(t, to(opening, generation, 0xca, 0xcf).frame()).is(t, "offer", xdpPass, seenBy(opening), "accept_avail")

	p := opening
	for _, flags := range []byte{syn, rst, rst | ack} {
		p.flags, p.seq = flags, opening.seq+77
		r.send(t, to(p, generation, 0xa5).frame())
		if _, known := r.settled(t, p.flow()); known {
			t.Errorf("flags %#02x established the flow", flags)
		}
	}
	p.flags, p.seq = ack, opening.seq+1
	r.send(t, to(p, 0, 0xe5, 0xe5).frame()).is(t, "rs of an opening", xdpPass, seenBy(p), "established", "recovered")
	s := to(p, generation+1, 0xa5)
	r.send(t, s.frame()).is(t, "another generation", xdpPass, seenBy(p), "steered_other_generation")
	if c := r.mustConn(t, p); c.State != connWait || c.Generation != generation {
		t.Errorf("another generation left %+v", c)
	}
	stray := opening
	stray.seq += 5555
	s = to(stray, policy.Generation(stray.seq), 0xca, 0xcf)
	r.send(t, s.frame()).is(t, "SYN into a live connection", xdpPass, seenBy(stray), "accept_challenged")
	r.answer(t, outward(huntPort, rst), 0)
	r.send(t, s.frame()).is(t, "SYN after its end", xdpPass, seenBy(stray), "accept_avail")

	p.src = netip.AddrPortFrom(clientAddr, 1)
	s = to(p, generation, 0xa5)
	r.send(t, s.frame()).is(t, "unknown", xdpTX, s.returned(), "give_back_not_mine")
	s = to(p, 0, 0xe5, 0xe5)
	r.send(t, s.frame()).is(t, "rs of an unknown", xdpTX, s.onward(hopMAC(2)), "pass_on_not_mine")
	r.send(t, to(p, 0, 0xe5).frame()).is(t, "the last rs", xdpPass, seenBy(p), "unowned")
	lost := opening
	lost.src = netip.AddrPortFrom(clientAddr, 2)
	r.send(t, to(lost, generation, 0xca, 0xcf).frame()).is(t, "offer", xdpPass, seenBy(lost), "accept_avail")
	lost.flags, lost.seq = rst, lost.seq+1
	r.send(t, to(lost, generation, reject).frame()).is(t, "another had it", xdpPass, seenBy(lost), "rejected")
}

// testOwnerNetns: the sockets of another network namespace are asked.
func testOwnerNetns(t *testing.T, seen hits) {
	enter(t)
	for _, a := range []netip.Addr{vipAddr, clientAddr} {
		addLocal(t, a)
	}
	alive := inward(huntPort, ack)
	established(t, alive, clientISN)
	l := listen(t, huntPort, 1)
	there, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { there.Close() })
	theirs := func(o *topo.Offering) {
		o.Owner, o.Netns = topo.Netns, fmt.Sprintf("/proc/self/fd/%d", there.Fd())
	}
	queue(t, l, huntPort, 1)

	r := newAgentRig(t, seen, offering(huntPort, theirs))
	opening := inward(huntPort, syn)
	opening.src = netip.AddrPortFrom(clientAddr, 1)
	r.accept(t, opening)
	r.send(t, to(alive, 0, 0xe5, 0xe5).frame()).is(t, "theirs", xdpPass, delivered(alive), "recovered")
	if again, err := netnsID(fmt.Sprintf("/proc/self/fd/%d", there.Fd())); err != nil || again < 0 {
		t.Errorf("its number, again: %d, %v", again, err)
	}
	for _, path := range []string{"/run/netns/there-is-none", os.DevNull} {
		if _, err := netnsID(path); err == nil {
			t.Errorf("%s has a number", path)
		}
	}
}

// TestAdoptAfterKill: what an agent learnt outlives it, also when the services
// come in another order; but not openings if their table has another size. What is
// no longer offered is forgotten.
func TestAdoptAfterKill(t *testing.T) {
	enter(t)
	pin := t.TempDir()
	if err := unix.Mount("bpf", pin, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(pin, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	gone, kept, fresh := offering(81, byTable), offering(huntPort, byTable), offering(82, byTable)
	cfg := agentConfig(64, gone, kept)
	cfg.Pin = pin + "/s1"
	killed := loadAgentRig(t, hits{}, cfg, inVirtualTime)
	if err := killed.Attach(); err != nil {
		t.Fatal(err)
	}
	p := inward(huntPort, syn)
	killed.accept(t, p)
	killed.acknowledge(t, p)
	request := inward(huntPort, ack|psh)
	request.seq, request.payload = p.seq+1, []byte("GET")
	killed.send(t, to(request, policy.Generation(p.seq), 0xa5).frame())
	opening := inward(huntPort, syn)
	opening.src = netip.AddrPortFrom(clientAddr, 1)
	killed.accept(t, opening)
	if _, n, err := DumpPinned(pin); err != nil || n != 2 {
		t.Errorf("a flow and an opening are dumped as %d entries (%v)", n, err)
	}
	killed.kill()

	cfg.Services = []topo.Offering{fresh, kept}
	r := loadAgentRig(t, hits{}, cfg, inVirtualTime)
	if err := r.Attach(); err != nil {
		t.Fatal(err)
	}
	if !r.Adopted() {
		t.Fatal("nothing was adopted")
	}
	if l, err := r.Load(1); err != nil || l.Asking != 1 || l.Threshold != 4 {
		t.Errorf("load %+v, %v", l, err)
	}
	if l, err := r.Load(0); err != nil || l.Asking != 0 {
		t.Errorf("the new service's load: %+v, %v", l, err)
	}
	if _, known := r.settled(t, p.flow()); !known {
		t.Error("its flow is forgotten")
	}
	r.acknowledge(t, opening)
	r.answer(t, answerOf(p, []byte("200")), 0).is(t, "answer", tcUnspec, nil, "out_direct")
	if l, err := r.Load(1); err != nil || l.Asking != 0 {
		t.Errorf("after the answer: %+v, %v", l, err)
	}
	other := inward(81, syn)
	r.send(t, to(other, 1, 0xcf).frame()).is(t, "no longer offered", xdpDrop, nil, "drop_not_our_service")

	waiting := inward(huntPort, syn)
	waiting.src = netip.AddrPortFrom(clientAddr, 2)
	r.accept(t, waiting)
	r.kill()
	r = loadAgentRig(t, hits{}, cfg, inVirtualTime)
	if _, known := r.settled(t, opening.flow()); !known {
		t.Error("its flow is forgotten")
	}
	if _, known := r.conn(t, waiting.flow()); !known {
		t.Error("an opening is forgotten")
	}
	r.kill()
	cfg.Flows.Embryonic = 8 * lineSlots
	r = loadAgentRig(t, hits{}, cfg, inVirtualTime)
	for _, p := range []packet{opening, waiting} {
		if _, known := r.conn(t, p.flow()); known {
			t.Error("a flow is known in a table of another size")
		}
	}
}

func answerOf(p packet, payload []byte) packet {
	a := outward(p.dst.Port(), ack|psh)
	a.payload = payload
	return a
}

// kill leaves what a killed agent leaves: the pins, what they hold, and the
// filter on the way out.
func (r *agentRig) kill() {
	r.pins.unlock() // the kernel does it for a process that ends
	r.pins, r.egress = pins{}, nil
}
