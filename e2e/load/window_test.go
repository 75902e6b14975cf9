package load

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/wire"
)

// nextSeq is the sequence number that a connection sends next.
func nextSeq(t *testing.T, c *net.TCPConn) (next uint32) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	set := func(fd uintptr, option, value int) {
		if err == nil {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, option, value)
		}
	}
	const offWithoutProbe, sendQueue = -1, 2 // linux/tcp.h
	if errControl := raw.Control(func(fd uintptr) {
		set(fd, unix.TCP_REPAIR, 1)
		set(fd, unix.TCP_REPAIR_QUEUE, sendQueue)
		var seq int
		if err == nil {
			seq, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
			next = uint32(seq)
		}
		set(fd, unix.TCP_REPAIR, offWithoutProbe)
	}); errControl != nil {
		err = errControl
	}
	if err != nil {
		t.Fatalf("read a connection's sequence number: %v", err)
	}
	return next
}

// TestRawByteHidesNoRequest: a raw packet of a client, 1 GB ahead of its connection, counts
// as no request, and its later requests count.
func TestRawByteHidesNoRequest(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	kit.Obedient(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	asking := func(want uint32) {
		t.Helper()
		kit.EventuallyIs(t, "requests in progress", want, func() uint32 { return kit.LoadAt(t, farm, bed.Servers[0]).Asking })
	}
	c := kit.Dial(t, bed)
	kit.Ask(t, c)
	asking(0)
	from := c.LocalAddr().(*net.TCPAddr).AddrPort()
	raw := func(flags uint8, payload ...byte) []byte {
		s := wire.TCP{From: from.Port(), To: testbed.Port, Seq: nextSeq(t, c) + 1e9, Flags: flags}
		return wire.IP{Source: from.Addr(), Destination: bed.VIP, HopLimit: wire.DefaultHopLimit}.TCP(s, payload)
	}
	lb := bed.LBs[0]
	for _, forged := range [][]byte{raw(wire.ACK|wire.PSH, 'x'), raw(wire.ACK | wire.FIN), raw(wire.RST)} {
		before := kit.Counter(t, farm, "steer", lb)
		kit.SendRaw(t, bed, forged)
		kit.Eventually(t, "the forged packet is steered", func() bool { return kit.Counter(t, farm, "steer", lb) > before })
		asking(0)
		kit.Say(t, c, "quiet")
		asking(1)
		kit.Ask(t, c)
		asking(0)
	}
	if n := kit.Counter(t, farm, "out_no_flow", bed.Servers[0]); n != 0 {
		t.Errorf("%d packets of a flow whose entry was lost", n)
	}
}
