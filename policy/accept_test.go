package policy

import (
	"testing"

	"proffer/topo"
)

func offers(a *Acceptor, n int, busy uint32) (taken int) {
	for range n {
		if a.Offer(busy) {
			taken++
		}
	}
	return taken
}

func TestAlwaysAndStatic(t *testing.T) {
	always := &Acceptor{Acceptance: topo.Always}
	if got := offers(always, 100, 1<<30); got != 100 {
		t.Errorf("always took %d of 100", got)
	}
	for busy := range uint32(9) {
		static := &Acceptor{Acceptance: topo.Static, Threshold: 4}
		if got := static.Offer(busy); got != (busy < 4) {
			t.Errorf("static:4 with %d busy: %v", busy, got)
		}
	}
	if offers(&Acceptor{Acceptance: topo.Static}, 100, 0) != 0 {
		t.Error("static:0 took an offer that it could pass on")
	}
}

// TestDynamicMoves: the threshold climbs by one a window while too little is
// taken, falls by one while too much is, stays inside [0, workers].
func TestDynamicMoves(t *testing.T) {
	a := &Acceptor{Acceptance: topo.Dynamic, Threshold: 1, Window: 50, Epsilon: 0.1, Workers: 32}
	for want := uint32(2); want <= 32; want++ {
		offers(a, 50, 100) // refuses all
		if a.Threshold != want {
			t.Fatalf("after refusing all: threshold %d, want %d", a.Threshold, want)
		}
	}
	offers(a, 500, 100)
	if a.Threshold != 32 {
		t.Fatalf("above the workers: threshold %d", a.Threshold)
	}
	offers(a, 50, 0) // the window ends with the answers of the one before
	for want := uint32(31); want > 0; want-- {
		if a.Threshold != want {
			t.Fatalf("after taking all: threshold %d, want %d", a.Threshold, want)
		}
		offers(a, 50, 0)
	}
	offers(a, 500, 0)
	if a.Threshold > 1 { // 0 refuses all of the next window, and climbs
		t.Fatalf("threshold %d, want 0 or 1", a.Threshold)
	}
}

// TestDynamicStays: a share of acceptances inside ½ ± ε moves nothing.
func TestDynamicStays(t *testing.T) {
	for _, c := range []struct {
		taken uint32 // of a window of 50 with ε = 0.1: 20 … 30 stay
		want  uint32
	}{{19, 5}, {20, 4}, {25, 4}, {30, 4}, {31, 3}} {
		a := &Acceptor{Acceptance: topo.Dynamic, Threshold: 4, Window: 50, Epsilon: 0.1, Workers: 32}
		for i := range uint32(49) {
			busy := uint32(9)
			if i < c.taken {
				busy = 0
			}
			a.Offer(busy)
		}
		a.Offer(9)
		if a.Threshold != c.want {
			t.Errorf("%d of 50 taken: threshold %d, want %d", c.taken, a.Threshold, c.want)
		}
	}
}
