package testbed

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A packet too big for the client's path, from the VIP, is answered to the
// VIP, which is the LBs'; one that fits arrives.
func TestNarrowPath(t *testing.T) {
	const mtu = 1300
	for _, delay := range []time.Duration{0, time.Millisecond} {
		b := up(t, Config{Servers: 1, Delay: Delay{Mean: delay}, ClientMTU: mtu})
		for _, f := range []struct {
			vip, client netip.Addr
			headers     int
			tooBig      []byte // at the beginning of an ICMP message: type, code
		}{
			{b.VIP, b.ClientAddrs[0], 40 + 8, []byte{2, 0}},
			{b.VIP4, b.ClientAddrs4[0], 20 + 8, []byte{3, 4}},
		} {
			var lb int
			err := b.LBs[0].Do(func() (err error) {
				lb, err = tap(device)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			c := dialFrom(t, b.Servers[0], f.vip, f.client)
			received := receiver(t, b.Client, f.client)
			send(t, c, mtu-f.headers)
			if n, err := received(); n != mtu-f.headers || err != nil {
				t.Errorf("%d bytes from %s fit, but %d arrived (%v)", mtu, f.vip, n, err)
			}
			send(t, c, mtu-f.headers+1)
			if got := complaint(t, lb, f.tooBig); got != mtu {
				t.Errorf("the LB learns that %d bytes fit, want %d", got, mtu)
			}
			unix.Close(lb)
		}
	}
}

// A stream from a server's own address learns how narrow the path is. With its
// own link of 1500 bytes the client offers to take more.
func TestStreamOnNarrowPath(t *testing.T) {
	b := up(t, Config{Servers: 1, ClientMTU: minMTU})
	stream(t, b.Client, b.Servers[0], 1<<20)
	l, err := b.Client.Listen("tcp", netip.AddrPortFrom(b.ClientAddrs[0], Port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := dial(t, b.LBs[0], "tcp", b.ClientAddrs[0])
	control(t, c, func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && info.Snd_mss != MTU-40-20-12 {
			t.Errorf("the client takes segments of %d bytes", info.Snd_mss)
		}
		return err
	})
}

// dialFrom connects with UDP from one of a node's addresses and forbids
// fragments.
func dialFrom(t *testing.T, n *Node, from, to netip.Addr) net.Conn {
	t.Helper()
	var c *net.UDPConn
	err := n.Do(func() (err error) {
		c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, Port)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	whole(t, c)
	return c
}

func send(t *testing.T, c net.Conn, size int) {
	t.Helper()
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatalf("send %d bytes: %v", size, err)
	}
}

// receiver listens for one datagram and returns how long it is.
func receiver(t *testing.T, n *Node, at netip.Addr) func() (int, error) {
	t.Helper()
	var l net.PacketConn
	err := n.Do(func() (err error) {
		l, err = net.ListenPacket("udp", netip.AddrPortFrom(at, Port).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return func() (int, error) {
		l.SetReadDeadline(time.Now().Add(5 * time.Second))
		n, _, err := l.ReadFrom(make([]byte, MTU))
		return n, err
	}
}

// complaint waits for an ICMP message of a type and code and returns the MTU
// it tells: the last two bytes of the first eight in both families.
func complaint(t *testing.T, tap int, kind []byte) int {
	t.Helper()
	frame := make([]byte, maxFrame)
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		awaitReadable(tap, deadline)
		n, err := unix.Read(tap, frame)
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		at, protocol := 14+40, frame[14+6]
		if frame[12] == 8 {
			at, protocol = 14+20, frame[14+9]
		}
		icmp := protocol == unix.IPPROTO_ICMP || protocol == unix.IPPROTO_ICMPV6
		if n > at+8 && icmp && bytes.HasPrefix(frame[at:], kind) {
			return int(frame[at+6])<<8 | int(frame[at+7])
		}
	}
	t.Fatal("no complaint")
	return 0
}
