package testbed

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
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

// exchange sends a datagram of a size and waits for its echo.
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

// drawn are so many delays, in ms.
func drawn(d Delay, n int) []float64 {
	source := newDelays(d, rand.New(rand.NewPCG(1, 0)))
	all := make([]float64, n)
	for i := range all {
		all[i] = source.next().Seconds() * 1e3
	}
	return all
}

// correlated is the correlation of numbers with those k before them.
func correlated(x []float64, k int) float64 {
	mean, _ := meanOf(x)
	var both, own float64
	for i := range x[k:] {
		both += (x[i] - mean) * (x[i+k] - mean)
		own += (x[i] - mean) * (x[i] - mean)
	}
	return both / own
}

func meanOf(x []float64) (mean, deviation float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		deviation += (v - mean) * (v - mean) / float64(len(x))
	}
	return mean, math.Sqrt(deviation)
}

func near(t *testing.T, name string, got, want, off float64) {
	t.Helper()
	if math.Abs(got-want) > off {
		t.Errorf("%s is %.3f, want %.3f ± %.3f", name, got, want, off)
	}
}

// TestDelaysArePareto: mean, deviation, quantiles and correlation of a million delays are those
// of Delay's equations; with and without a correlation the distribution is the same.
func TestDelaysArePareto(t *testing.T) {
	for _, rho := range []float64{0, 0.25} {
		ms := drawn(Delay{Mean: 20 * time.Millisecond, Deviation: 5 * time.Millisecond, Correlation: rho}, 1_000_000)
		mean, deviation := meanOf(ms)
		near(t, "the mean", mean, 20, 0.1)
		near(t, "the deviation", deviation, 5, 0.3) // its own deviation is large: no fourth moment
		near(t, "the correlation", correlated(ms, 1), rho, 0.01)
		near(t, "the correlation two frames later", correlated(ms, 2), rho*rho, 0.01)
		slices.Sort(ms)
		for _, part := range []float64{0, 0.5, 0.9, 0.99} {
			want := 20 + 5*(math.Pow(1-part, -1.0/3)-1.5)/math.Sqrt(0.75)
			near(t, "a quantile", ms[int(part*float64(len(ms)))], want, 0.2)
		}
	}
}

// TestDelaysHaveAnEnd: the longest tail ends at 500 ms, and nothing is negative.
func TestDelaysHaveAnEnd(t *testing.T) {
	d := Delay{Mean: 400 * time.Millisecond, Deviation: 400 * time.Millisecond}
	for _, part := range []float64{0, 1e-9, 0.5, 0.999999, math.Nextafter(1, 0)} {
		if at := d.at(part); at < 0 || at > maxDelay {
			t.Errorf("at %v: %v", part, at)
		}
	}
	if got := d.at(math.Nextafter(1, 0)); got != maxDelay {
		t.Errorf("the longest is %v", got)
	}
}

// TestFixedDelay: no deviation, no random number.
func TestFixedDelay(t *testing.T) {
	if ms := drawn(Delay{Mean: time.Second / 4, Correlation: 0.5}, 100); slices.Min(ms) != 250 || slices.Max(ms) != 250 {
		t.Errorf("from %v to %v ms", slices.Min(ms), slices.Max(ms))
	}
}
