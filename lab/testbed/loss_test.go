package testbed

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func lost(t *testing.T, b *Bed) uint64 {
	t.Helper()
	n, err := b.Lost()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// flood sends marked packets from one node to another, which answers nothing,
// and counts those that arrive there.
func flood(t *testing.T, b *Bed, from, to *Node, packets int) (arrived int) {
	t.Helper()
	var in int
	err := to.Do(func() (err error) {
		in, err = tap(device)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(in)
	some := slices.Repeat([][]byte{ipv6(from.Addr, to.Addr, noNext, mark("flood"))}, batch)
	for range packets / batch {
		inject(t, b, from, some...)
		arrived += seen(in)
	}
	return arrived + rest(in)
}

// rest counts what is still on its way, until nothing comes any more.
func rest(tap int) (n int) {
	const silence = 200 * time.Millisecond
	for {
		awaitReadable(tap, time.Now().Add(silence))
		more := seen(tap)
		if more == 0 {
			return n
		}
		n += more
	}
}

const batch = 50 // few enough to find room on their way

// seen counts the marked frames that a tap has.
func seen(tap int) (n int) {
	frame := make([]byte, maxFrame)
	for {
		size, err := unix.Read(tap, frame)
		if err != nil {
			return n
		}
		if bytes.Contains(frame[:size], mark("flood")) {
			n++
		}
	}
}

// wantShare fails for a count more than six standard deviations from binomial,
// that is once in 500 million.
func wantShare(t *testing.T, what string, got, of int, p float64) {
	t.Helper()
	mean, deviation := float64(of)*p, math.Sqrt(float64(of)*p*(1-p))
	if math.Abs(float64(got)-mean) > 6*deviation {
		t.Errorf("%s: %d of %d, want %.0f ± %.0f", what, got, of, mean, deviation)
	}
}

// Each direction of each link loses its share, and each loss is counted.
func TestLoss(t *testing.T) {
	const datagrams, p = 4000, 0.2
	b := up(t, Config{Servers: 1, Transits: 1})
	if err := b.SetLoss(p); err != nil {
		t.Fatal(err)
	}
	way := []*Node{b.Client, b.Servers[0], b.LBs[0], b.Transits[0], b.Client}
	for i := range len(way) - 1 {
		from, to := way[i], way[i+1]
		before := lost(t, b)
		arrived := flood(t, b, from, to, datagrams)
		counted := int(lost(t, b) - before)
		wantShare(t, "from "+from.Name+" to "+to.Name, arrived, datagrams, (1-p)*(1-p))
		// Neighbour discovery is lost and counted, too.
		if missing := datagrams - arrived; counted < missing || counted > missing+50 {
			t.Errorf("%s to %s: %d missing, %d counted", from.Name, to.Name, missing, counted)
		}
	}
}

// One direction alone: frames to the router, counted as they pass its XDP, and
// frames of its own.
func TestLossOfEachDirection(t *testing.T) {
	const datagrams, p = 3000, 0.3
	b := up(t, Config{Servers: 1, Loss: p})
	s := b.Servers[0]
	var in int
	err := b.Router.Do(func() (err error) {
		in, err = tap(s.Link)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(in)
	flood(t, b, s, b.LBs[0], datagrams)
	wantShare(t, "to the router", rest(in), datagrams, 1-p)
	wantShare(t, "from the router", echoes(t, b, s, datagrams), datagrams, 1-p)
}

// echoes counts the datagrams from the router itself that a node gets.
func echoes(t *testing.T, b *Bed, to *Node, datagrams int) (arrived int) {
	t.Helper()
	var in int
	err := to.Do(func() (err error) {
		in, err = tap(device)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(in)
	c := dial(t, b.Router, "udp", to.Addr)
	for range datagrams {
		for { // what clsact drops is an error to a local sender; a refusal comes late
			if _, err := c.Write(mark("flood")); !errors.Is(err, unix.ECONNREFUSED) {
				break
			}
		}
		arrived += seen(in)
	}
	return arrived + rest(in)
}

// TCP gets through, by IPv4 and IPv6, with a delay box and without.
func TestStreamUnderLoss(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Millisecond} {
		b := up(t, Config{Servers: 1, Delay: Delay{Mean: delay}, Loss: 0.02})
		stream(t, b.Client, b.Servers[0], 200_000)
		if n := lost(t, b); n == 0 {
			t.Error("nothing was lost")
		}
		if err := b.SetLoss(0); err != nil {
			t.Fatal(err)
		}
		before := lost(t, b)
		connect(t, b.Client, b.Servers[0], b.Servers[0].Addr4)
		if n := lost(t, b); n != before {
			t.Errorf("%d frames lost at no loss", n-before)
		}
	}
}

// A link laid while frames are lost stands, and then loses its share.
func TestLossOfARevivedLink(t *testing.T) {
	const datagrams, p = 3000, 0.5
	b := up(t, Config{Servers: 1, Loss: p})
	kill(t, b, b.Servers[0])
	revive(t, b, b.Servers[0])
	wantShare(t, "to the revived", echoes(t, b, b.Servers[0], datagrams), datagrams, 1-p)
}

func TestImpossibleLoss(t *testing.T) {
	b := up(t, Config{Servers: 1})
	for _, p := range []float64{-0.01, 0.51, math.NaN(), math.Inf(1)} {
		if err := b.SetLoss(p); err == nil {
			t.Errorf("loss %v: no error", p)
		}
	}
	connect(t, b.Client, b.Servers[0], b.Servers[0].Addr)
	if n := lost(t, b); n != 0 {
		t.Errorf("%d frames lost", n)
	}
}
