package agent_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/dataplane/agent"
	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// testCookie: a listener that remembers no handshake knows its cookie; the flow
// is ours only if this agent accepted its offer too.
func testCookie(t *testing.T, seen rig.Hits) {
	for _, c := range []struct {
		label  string
		client netip.Addr
		vip    netip.Addr
	}{
		{"IPv6", netip.MustParseAddr("2001:db8:c::9"), rig.VipAddr},
		{"IPv4", netip.MustParseAddr("192.0.2.9"), rig.Vip4},
	} {
		t.Run(c.label, func(t *testing.T) {
			r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.VIP.Addr = c.vip }))
			always := []byte("2") // tcp_syncookies: even if there is room
			if err := os.WriteFile("/proc/sys/net/ipv4/tcp_syncookies", always, 0o644); err != nil {
				t.Fatal(err)
			}
			listenAt(t, netip.AddrPortFrom(c.vip, rig.HuntPort), 128)
			p := rig.Inward(rig.HuntPort, wire.SYN)
			p.Src, p.Dst = netip.AddrPortFrom(c.client, 40000), netip.AddrPortFrom(c.vip, rig.HuntPort)
			opening := p
			p.Ack = handshake(t, p) + 1
			p.Flags, p.Seq = wire.ACK, p.Seq+1
			generation := wire.Generation(opening.Seq)
			s := rig.To(p, generation, wire.AckStickiness)
			r.Send(t, s.Frame()).Is(t, "no offer of ours", rig.XDPTX, s.Returned(), "give_back_not_mine")
			r.Accept(t, opening)
			wrong := p
			wrong.Ack += 1000 // its lowest bits say which MSS
			r.Send(t, rig.To(wrong, generation, wire.AckStickiness).Frame()).Is(t, "another cookie", rig.XDPPass, rig.Delivered(wrong), "steered_embryonic")
			late := p // the fields that the cookie covers have changed
			late.Seq++
			r.Send(t, rig.To(late, generation, wire.AckStickiness).Frame()).Is(t, "not its first packet", rig.XDPPass, rig.Delivered(late), "steered_embryonic")
			r.Send(t, s.Frame()).Is(t, "ours", rig.XDPPass, rig.Delivered(p), "established", "acknowledged", "steered")
		})
	}
}

// listenAt opens a port of either family.
func listenAt(t testing.TB, at netip.AddrPort, backlog int) int {
	t.Helper()
	fd := rig.Socket(t, at)
	if err := unix.Listen(fd, backlog); err != nil {
		t.Fatal(err)
	}
	return fd
}

// handshake sends the SYN of p over the wire and returns the sequence number of
// the kernel's SYN-ACK. The client must not be local; this makes it a neighbour.
func handshake(t testing.TB, p rig.Packet) uint32 {
	t.Helper()
	protocol, l4 := unix.ETH_P_IPV6, rig.AtUpper
	if p.Src.Addr().Is4() {
		protocol, l4 = unix.ETH_P_IP, 14+20
	}
	neighbour(t, p.Src.Addr())
	fd := tap(t, uint16(protocol))
	if _, err := unix.Write(fd, rig.InnerTCP(p).Delivered()); err != nil {
		t.Fatal(err)
	}
	for buffer := make([]byte, 2048); ; {
		n, err := unix.Read(fd, buffer)
		if err != nil {
			t.Fatalf("wait for the SYN-ACK: %v", err)
		}
		if n >= l4+20 && buffer[l4+13] == wire.SYN|wire.ACK {
			return binary.BigEndian.Uint32(buffer[l4+4:])
		}
	}
}

// tap is the far end of the wire, for frames of one protocol.
func tap(t testing.TB, protocol uint16) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(objects.PortBits(protocol)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: objects.PortBits(protocol), Ifindex: rig.LinkIndex(t, rig.FarEnd)}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// testRejected: the loser of two acceptances gets the client's RST, which ends
// its request socket; nothing that lives is ever reset.
func testRejected(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort), udpOffering())
	l := rig.Listen(t, rig.HuntPort, 128)
	opening := rig.Inward(rig.HuntPort, wire.SYN)
	opening.Src = netip.MustParseAddrPort("[2001:db8:c::9]:40000")
	generation := wire.Generation(opening.Seq)
	end := opening
	end.Flags, end.Seq = wire.RST, opening.Seq+1
	stale := func(label string, s rig.SR) {
		t.Helper()
		r.Send(t, s.Frame()).Is(t, label, rig.XDPDrop, nil, "drop_reject_stale")
	}
	stale("of no flow", rig.To(end, generation, wire.Reject))
	r.Accept(t, opening)
	theirs := handshake(t, opening)
	stale("of another generation", rig.To(end, generation+1, wire.Reject))
	for _, flags := range []byte{wire.ACK, wire.SYN, wire.FIN | wire.ACK} {
		other := end
		other.Flags = flags
		stale(fmt.Sprintf("by flags %#02x", flags), rig.To(other, generation, wire.Reject))
	}
	r.Send(t, rig.To(end, generation, wire.Reject).Frame()).Is(t, "of ours", rig.XDPPass, rig.Delivered(end), "rejected")
	if _, known := r.Conn(t, opening.Flow()); known {
		t.Error("a rejected flow has an entry")
	}
	stale("again", rig.To(end, generation, wire.Reject))
	if _, err := unix.Write(tap(t, unix.ETH_P_IPV6), rig.Delivered(end)); err != nil {
		t.Fatal(err)
	}
	first := opening
	first.Flags, first.Seq, first.Ack = wire.ACK, opening.Seq+1, theirs+1
	question := rig.To(first, 0, wire.RecoverStickiness, wire.RecoverStickiness)
	rig.Eventually(t, "the request socket's end", func() bool { return r.Run(t, question.Frame()).Action == rig.XDPTX })

	rig.Reset(t, l)
	alive := rig.Inward(rig.HuntPort, wire.SYN)
	r.Begin(t, alive)
	end = alive
	end.Flags, end.Seq = wire.RST, alive.Seq+1
	stale("of a full socket", rig.To(end, generation, wire.Reject))
	r.Acknowledge(t, alive)
	stale("of an established flow", rig.To(end, generation, wire.Reject))

	datagram := rig.Inward(udpPort, 0)
	listenUDP(t, datagram.Dst)
	in := rig.InnerUDP(datagram)
	r.Send(t, rig.ToWith(in, 0, wire.ConnectForce).Frame()).Is(t, "datagram", rig.XDPPass, in.Delivered(), "accept_force")
	c, _ := r.Conn(t, in.Flow)
	stale("of a datagram", rig.ToWith(in, c.Generation, wire.Reject))
}

// TestRejectTimeWait: a flow in TIME_WAIT is not a request that lost.
func TestRejectTimeWait(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	rig.TimeWait(t, rig.Listen(t, rig.HuntPort, 128), p)
	r.Accept(t, p)
	p.Flags = wire.RST
	r.Send(t, rig.To(p, wire.Generation(p.Seq), wire.Reject).Frame()).Is(t, "in TIME_WAIT", rig.XDPDrop, nil, "drop_reject_stale")
}

// testOwnerTable: where no socket is visible, the agent's own entries decide the
// owner of a flow, and the packet goes to the host of the VIP.
func testOwnerTable(t *testing.T, seen rig.Hits) {
	guest := topo.MAC{2, 0, 0, 0, 9, 9}
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, rig.ByTable, func(o *topo.Offering) { o.MAC = guest }))
	opening := rig.Inward(rig.HuntPort, wire.SYN)
	generation := wire.Generation(opening.Seq)
	seenBy := func(p rig.Packet) []byte { return rig.InnerTCP(p).Frame(guest, rig.RouterMAC) }
	r.Send(t, rig.To(opening, generation, wire.ConnectAvail, wire.ConnectForce).Frame()).Is(t, "offer", rig.XDPPass, seenBy(opening), "accept_avail")

	p := opening
	for _, flags := range []byte{wire.SYN, wire.RST, wire.RST | wire.ACK} {
		p.Flags, p.Seq = flags, opening.Seq+77
		r.Send(t, rig.To(p, generation, wire.AckStickiness).Frame())
		if _, known := r.Settled(t, p.Flow()); known {
			t.Errorf("flags %#02x established the flow", flags)
		}
	}
	p.Flags, p.Seq = wire.ACK, opening.Seq+1
	r.Send(t, rig.To(p, 0, wire.RecoverStickiness, wire.RecoverStickiness).Frame()).Is(t, "rs of an opening", rig.XDPPass, seenBy(p), "established", "recovered")
	s := rig.To(p, generation+1, wire.AckStickiness)
	r.Send(t, s.Frame()).Is(t, "another generation", rig.XDPPass, seenBy(p), "steered_other_generation")
	if c := r.MustConn(t, p); c.State != objects.ConnWait || c.Generation != generation {
		t.Errorf("another generation left %+v", c)
	}
	stray := opening
	stray.Seq += 5555
	s = rig.To(stray, wire.Generation(stray.Seq), wire.ConnectAvail, wire.ConnectForce)
	r.Send(t, s.Frame()).Is(t, "SYN into a live connection", rig.XDPPass, seenBy(stray), "accept_challenged")
	answerOut(r, t, rig.Outward(rig.HuntPort, wire.RST), 0)
	r.Send(t, s.Frame()).Is(t, "SYN after its end", rig.XDPPass, seenBy(stray), "accept_avail")

	p.Src = netip.AddrPortFrom(rig.ClientAddr, 1)
	s = rig.To(p, generation, wire.AckStickiness)
	r.Send(t, s.Frame()).Is(t, "unknown", rig.XDPTX, s.Returned(), "give_back_not_mine")
	s = rig.To(p, 0, wire.RecoverStickiness, wire.RecoverStickiness)
	r.Send(t, s.Frame()).Is(t, "rs of an unknown", rig.XDPTX, s.Onward(rig.HopMAC(2)), "pass_on_not_mine")
	r.Send(t, rig.To(p, 0, wire.RecoverStickiness).Frame()).Is(t, "the last rs", rig.XDPPass, seenBy(p), "unowned")
	lost := opening
	lost.Src = netip.AddrPortFrom(rig.ClientAddr, 2)
	r.Send(t, rig.To(lost, generation, wire.ConnectAvail, wire.ConnectForce).Frame()).Is(t, "offer", rig.XDPPass, seenBy(lost), "accept_avail")
	lost.Flags, lost.Seq = wire.RST, lost.Seq+1
	r.Send(t, rig.To(lost, generation, wire.Reject).Frame()).Is(t, "another had it", rig.XDPPass, seenBy(lost), "rejected")
}

// testOwnerNetns: the sockets of another network namespace are asked.
func testOwnerNetns(t *testing.T, seen rig.Hits) {
	rig.Enter(t)
	for _, a := range []netip.Addr{rig.VipAddr, rig.ClientAddr} {
		rig.AddLocal(t, a)
	}
	alive := rig.Inward(rig.HuntPort, wire.ACK)
	rig.Established(t, alive, rig.ClientISN)
	l := rig.Listen(t, rig.HuntPort, 1)
	there, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { there.Close() })
	theirs := func(o *topo.Offering) {
		o.Owner, o.Netns = topo.Netns, fmt.Sprintf("/proc/self/fd/%d", there.Fd())
	}
	rig.Queue(t, l, rig.HuntPort, 1)

	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, theirs))
	opening := rig.Inward(rig.HuntPort, wire.SYN)
	opening.Src = netip.AddrPortFrom(rig.ClientAddr, 1)
	r.Accept(t, opening)
	r.Send(t, rig.To(alive, 0, wire.RecoverStickiness, wire.RecoverStickiness).Frame()).Is(t, "theirs", rig.XDPPass, rig.Delivered(alive), "recovered")
	if again, err := agent.NetnsID(fmt.Sprintf("/proc/self/fd/%d", there.Fd())); err != nil || again < 0 {
		t.Errorf("its number, again: %d, %v", again, err)
	}
	if _, err := agent.NetnsID(os.DevNull); err == nil {
		t.Errorf("%s has a number", os.DevNull)
	}
}

// TestAdoptAfterKill: an agent's entries outlive it, also when the services
// come in another order; but not embryonic ones if their table has another size.
// Entries of services that are no longer offered are removed.
func TestAdoptAfterKill(t *testing.T) {
	rig.Enter(t)
	pin := t.TempDir()
	if err := unix.Mount("bpf", pin, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(pin, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	elsewhere := func(o *topo.Offering) { o.VIP.Addr = rig.Vip4 }
	gone, kept, fresh := rig.Offering(81, rig.ByTable, elsewhere), rig.Offering(rig.HuntPort, rig.ByTable), rig.Offering(82, rig.ByTable)
	cfg := rig.AgentConfig(64, gone, kept)
	cfg.Pin = pin + "/s1"
	killed := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
	if err := killed.Attach(); err != nil {
		t.Fatal(err)
	}
	p := rig.Inward(rig.HuntPort, wire.SYN)
	killed.Accept(t, p)
	killed.Acknowledge(t, p)
	request := rig.Inward(rig.HuntPort, wire.ACK|wire.PSH)
	request.Seq, request.Payload = p.Seq+1, []byte("GET")
	killed.Send(t, rig.To(request, wire.Generation(p.Seq), wire.AckStickiness).Frame())
	opening := rig.Inward(rig.HuntPort, wire.SYN)
	opening.Src = netip.AddrPortFrom(rig.ClientAddr, 1)
	killed.Accept(t, opening)
	if _, n, err := dataplane.DumpPinned(pin); err != nil || n != 2 {
		t.Errorf("a flow and an opening are dumped as %d entries (%v)", n, err)
	}
	killed.Die()

	cfg.Services = []topo.Offering{fresh, kept}
	r := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
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
	if n := r.Offered(t); n != 3 {
		t.Errorf("%d entries for two services and their address", n)
	}
	if _, known := r.Settled(t, p.Flow()); !known {
		t.Error("its flow is forgotten")
	}
	r.Acknowledge(t, opening)
	answerOut(r, t, answerOf(p, []byte("200")), 0).Is(t, "answer", tcUnspec, nil, "out_direct")
	if l, err := r.Load(1); err != nil || l.Asking != 0 {
		t.Errorf("after the answer: %+v, %v", l, err)
	}
	other := rig.Inward(81, wire.SYN)
	r.Send(t, rig.To(other, 1, wire.ConnectForce).Frame()).Is(t, "no longer offered", rig.XDPDrop, nil, "drop_not_our_service")

	waiting := rig.Inward(rig.HuntPort, wire.SYN)
	waiting.Src = netip.AddrPortFrom(rig.ClientAddr, 2)
	r.Accept(t, waiting)
	r.Die()
	r = rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
	if _, known := r.Settled(t, opening.Flow()); !known {
		t.Error("its flow is forgotten")
	}
	if _, known := r.Conn(t, waiting.Flow()); !known {
		t.Error("an opening is forgotten")
	}
}

func answerOf(p rig.Packet, payload []byte) rig.Packet {
	a := rig.Outward(p.Dst.Port(), wire.ACK|wire.PSH)
	a.Payload = payload
	return a
}
