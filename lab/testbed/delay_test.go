package testbed

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// echo answers datagrams on a node until the test ends.
func echo(t *testing.T, n *Node, addr netip.Addr) netip.AddrPort {
	t.Helper()
	var server net.PacketConn
	at := netip.AddrPortFrom(addr, Port)
	err := n.Do(func() (err error) {
		server, err = net.ListenPacket("udp6", at.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			server.WriteTo(buffer[:n], from)
		}
	}()
	return at
}

// exchange sends one datagram of a size and waits for its echo.
func exchange(t *testing.T, c net.Conn, size int) time.Duration {
	t.Helper()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	start := time.Now()
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatalf("send %d bytes: %v", size, err)
	}
	n, err := c.Read(make([]byte, size+1))
	if err != nil || n != size {
		t.Fatalf("echo of %d bytes: %d, %v", size, n, err)
	}
	return time.Since(start)
}

func TestDelayIsTwicePerRoundTrip(t *testing.T) {
	const delay = 10 * time.Millisecond
	b := up(t, Config{Servers: 1, Delay: delay})
	at := echo(t, b.Servers[0], b.Servers[0].Addr)
	c, err := b.Client.DialContext(t.Context(), "udp6", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	total := time.Duration(0)
	const rounds = 20
	for range rounds {
		rtt := exchange(t, c, 100)
		if rtt < 2*delay {
			t.Fatalf("round trip of %v over two delays of %v", rtt, delay)
		}
		total += rtt
	}
	t.Logf("mean round trip %v for %v", total/rounds, 2*delay)
}

// Both ways through the box and on every link, 1500 bytes pass and 1501 do not.
func TestMTU(t *testing.T) {
	const headers = 40 + 8 // IPv6, UDP
	for _, delay := range []time.Duration{0, time.Millisecond} {
		b := up(t, Config{Servers: 1, Delay: delay})
		at := echo(t, b.Servers[0], b.Servers[0].Addr)
		c, err := b.Client.DialContext(t.Context(), "udp6", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		whole(t, c)
		exchange(t, c, MTU-headers)
		if _, err := c.Write(make([]byte, MTU-headers+1)); !errors.Is(err, unix.EMSGSIZE) {
			t.Fatalf("1501 bytes: %v, want %v", err, unix.EMSGSIZE)
		}
		if n := b.DelayDrops(); n != 0 {
			t.Fatalf("delay box dropped %d frames", n)
		}
	}
}

// whole forbids fragments.
func whole(t *testing.T, c net.Conn) {
	t.Helper()
	control(t, c, func(fd int) error {
		if c.RemoteAddr().(*net.UDPAddr).AddrPort().Addr().Is4() {
			return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		}
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
	})
}

// A stream crosses the box unchanged in both directions.
func TestDelayedStream(t *testing.T) {
	const size = 4 << 20
	b := up(t, Config{Servers: 1, Delay: 2 * time.Millisecond})
	l, err := b.Servers[0].Listen("tcp6", netip.AddrPortFrom(b.Servers[0].Addr, Port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.Copy(c, c)
			c.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := b.Client.DialContext(ctx, "tcp6", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	sent, got := sha256.New(), sha256.New()
	go func() {
		source := io.LimitReader(rand.NewChaCha8([32]byte{1}), size)
		io.Copy(io.MultiWriter(c, sent), source)
		c.(*net.TCPConn).CloseWrite()
	}()
	n, err := io.Copy(got, c)
	if err != nil || n != size {
		t.Fatalf("%d of %d bytes came back: %v", n, size, err)
	}
	if [32]byte(sent.Sum(nil)) != [32]byte(got.Sum(nil)) {
		t.Fatal("the stream changed on its way")
	}
	t.Logf("delay box dropped %d frames", b.DelayDrops())
}
