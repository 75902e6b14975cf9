package testbed

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// echo answers datagrams on a node until the test ends.
func echo(t testing.TB, n *Node, addr netip.Addr) netip.AddrPort {
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
	c.SetDeadline(time.Now().Add(time.Minute))
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
	b := up(t, Config{Servers: 1, Delay: Delay{Mean: delay}})
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
		b := up(t, Config{Servers: 1, Delay: Delay{Mean: delay}})
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
	b := up(t, Config{Servers: 1, Delay: Delay{Mean: 2 * time.Millisecond}})
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

// crossed are numbered datagrams that a node sends itself at a rate through the box and the far
// side's echo: the numbers in the order in which they come back, and how long each took.
func crossed(t testing.TB, b *Bed, n int, every time.Duration) (order []int, took []time.Duration) {
	t.Helper()
	at := echo(t, b.Servers[0], b.Servers[0].Addr)
	c, err := b.Client.DialContext(t.Context(), "udp6", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	go func() {
		for i := range n {
			if early := time.Duration(i)*every - time.Since(began); early > 0 {
				time.Sleep(early)
			}
			packet := binary.BigEndian.AppendUint64(nil, uint64(i))
			c.Write(binary.BigEndian.AppendUint64(packet, uint64(time.Since(began))))
		}
	}()
	c.SetReadDeadline(time.Now().Add(time.Duration(n)*every + time.Minute))
	packet := make([]byte, 16)
	for len(order) < n {
		if _, err := io.ReadFull(c, packet); err != nil {
			t.Logf("%d of %d came back, the box dropped %d: %v", len(order), n, b.DelayDrops(), err)
			break
		}
		order = append(order, int(binary.BigEndian.Uint64(packet)))
		took = append(took, time.Since(began)-time.Duration(binary.BigEndian.Uint64(packet[8:])))
	}
	return order, took
}

// TestDelayKeepsOrder: with a fixed delay datagrams stay in order; with one that deviates each has
// its own, and some overtake others. None is lost, none comes before its time.
func TestDelayKeepsOrder(t *testing.T) {
	for _, deviation := range []time.Duration{0, 5 * time.Millisecond} {
		d := Delay{Mean: 5 * time.Millisecond, Deviation: deviation, Correlation: 0.25}
		order, took := crossed(t, up(t, Config{Servers: 1, Delay: d}), 500, time.Millisecond/2)
		if sorted := slices.IsSorted(order); sorted != (deviation == 0) {
			t.Errorf("deviation %v: in order: %v", deviation, sorted)
		}
		if least, want := slices.Min(took), 2*d.at(0); deviation > 0 && least < want || deviation == 0 && least < 2*d.Mean {
			t.Errorf("deviation %v: a datagram took %v both ways", deviation, least)
		}
		slices.Sort(order)
		if len(order) != 500 || len(slices.Compact(order)) != 500 {
			t.Errorf("deviation %v: %d came, want 500, each once", deviation, len(order))
		}
	}
}

// BenchmarkDelay has 20,000 frames a second cross the box in each direction: the time above two
// delays of 10 ms, with that of the kernel and both programs.
func BenchmarkDelay(b *testing.B) {
	const delay = 10 * time.Millisecond
	bed, err := Up(b.Context(), Config{Servers: 1, Delay: Delay{Mean: delay}})
	if err != nil {
		b.Fatal(err)
	}
	defer bed.Close()
	for b.Loop() {
		_, took := crossed(b, bed, 20_000, 50*time.Microsecond)
		slices.Sort(took)
		for _, part := range []float64{0.5, 0.99} {
			more := took[int(part*float64(len(took)))] - 2*delay
			b.ReportMetric(float64(more.Microseconds()), fmt.Sprintf("µs-p%.0f", 100*part))
		}
		b.ReportMetric(float64(bed.DelayLate().Microseconds()), "µs-late")
		b.ReportMetric(float64(20_000-len(took)), "lost")
		b.ReportMetric(float64(bed.DelayDrops()), "box-drops")
	}
}
