package weights

import (
	"slices"
	"testing"
	"time"
)

// TestOwed: a server that began none of the last 64 flows a server is owed one until it begins it, the
// longest wait first, and no more than one flow in 64; a server that takes no flows is not.
func TestOwed(t *testing.T) {
	const n = 8
	f := NewFilter(n, QuickFilter())
	all := func(int) bool { return true }
	f.Began(0, n*waitFlows)
	if owed := f.Owed(all); owed != nil {
		t.Errorf("servers %v are owed a flow after %d flows", owed, n*waitFlows)
	}
	f.Began(3, 1)
	if owed := f.Owed(all); !slices.Equal(owed, []int{1}) {
		t.Errorf("servers %v are owed a flow, want one", owed)
	}
	f.Began(0, 2*oweOneIn)
	if owed := f.Owed(func(i int) bool { return i != 1 && i != 4 }); !slices.Equal(owed, []int{2, 5}) {
		t.Errorf("servers %v are owed a flow, want 2 and 5", owed)
	}
	f.Began(5, 1)
	if owed := f.Owed(all); !slices.Equal(owed, []int{2}) {
		t.Errorf("servers %v are owed a flow, want 2", owed)
	}
	for range 1000 {
		f.Began(0, 10)
		f.Owed(func(int) bool { return false })
	}
	f.Began(3, 1)
	if owed := f.Owed(all); len(owed) != 1 {
		t.Errorf("servers %v are owed a flow at once, want one", owed)
	}
}

// TestShareOfOwed: of many flows to one server, the others get one in 64 together, and in turn.
func TestShareOfOwed(t *testing.T) {
	const n, flows = 10, 100_000
	f := NewFilter(n, QuickFilter())
	got := make([]int, n)
	for range flows {
		to := 0
		if owed := f.Owed(func(int) bool { return true }); len(owed) > 0 {
			to = owed[0]
		}
		f.Began(to, 1)
		got[to]++
	}
	for i, flowsOf := range got[1:] {
		if want := flows / oweOneIn / (n - 1); flowsOf < want*8/10 || flowsOf > want*11/10 {
			t.Errorf("server %d got %d flows, want about %d", i+1, flowsOf, want)
		}
	}
}

// TestOwedIsRelearned: a server with many long durations, which is as fast as the other by now, shows
// it in 40 flows that it is owed. The published filter owes none.
func TestOwedIsRelearned(t *testing.T) {
	f := NewFilter(2, QuickFilter())
	step := time.Duration(0)
	learn := func(server int, took float64) float64 {
		step++
		f.Observe(step, Sample{Server: server, Value: took})
		f.Began(server, 1)
		f.Owed(func(int) bool { return true })
		w := f.Weights(step)
		return w[1] / w[0]
	}
	for range 1000 {
		learn(0, 1)
		learn(1, 10)
	}
	before, after := learn(0, 1), 0.0
	for range 40 {
		for range 20 * waitFlows {
			learn(0, 1)
		}
		after = learn(1, 1)
	}
	if before > 0.2 || after < 0.8 {
		t.Errorf("ratio of weights %v, then %v; want less than 0.2, then 0.8 or more", before, after)
	}
	f = NewFilter(2, PublishedFilter())
	f.Began(0, 1_000_000)
	if owed := f.Owed(func(int) bool { return true }); owed != nil {
		t.Errorf("servers %v are owed a flow with the published filter", owed)
	}
}

// TestTurnsOfPool: servers that stay keep their turns; a server that joins waits from then on.
func TestTurnsOfPool(t *testing.T) {
	f := NewFilter(3, QuickFilter())
	f.Began(0, 3*waitFlows)
	f.Owed(func(int) bool { return false })
	next := NewFilter(3, QuickFilter())
	next.Inherit(0, f, 0)
	next.Inherit(1, f, 2)
	next.Began(0, oweOneIn)
	if owed := next.Owed(func(int) bool { return true }); !slices.Equal(owed, []int{1}) {
		t.Errorf("servers %v are owed a flow, want the one that waited before", owed)
	}
}

// TestSlowestWeighs: the weight of a server is above 0, however slow it is.
func TestSlowestWeighs(t *testing.T) {
	const n = 1024
	f := NewFilter(n, QuickFilter())
	for step := time.Duration(1); step < 100; step++ {
		f.Observe(step, Sample{Server: 0, Value: 1e12})
		f.Observe(step, Sample{Server: 1, Value: 1e-3})
		for i := 2; i < n; i++ {
			f.Observe(step, Sample{Server: i, Value: 1e-3})
		}
		if w := f.Weights(step); !(w[0] > 0 && w[0] < 1e-200) {
			t.Fatalf("step %d: weight %v", step, w[0])
		}
	}
}
