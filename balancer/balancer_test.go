package balancer

import (
	"math"
	"strings"
	"testing"
	"time"

	"proffer/weights"
)

const tick = 30 * time.Millisecond

// sent is packets so far of cores with one service.
func sent(counts ...uint64) [][]weights.Packets {
	var all [][]weights.Packets
	for _, n := range counts {
		all = append(all, []weights.Packets{{n}})
	}
	return all
}

func two(t *testing.T, s Settings) *Balancer {
	t.Helper()
	s.Costs = weights.Costs{{weights.Fixed(1000)}, {weights.Fixed(1000)}}
	if s.Weigher == nil {
		s.Weigher = weights.NewPID(2, weights.PublishedGains())
	}
	b, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	b.Tick(tick, Reading{Packets: sent(0, 0)})
	return b
}

// TestOtherLBsCount: a core that another LB loads gets less.
func TestOtherLBsCount(t *testing.T) {
	b := two(t, Settings{})
	others := make([]weights.ByAge, 2)
	others[1][3] = 0.5
	d := b.Tick(2*tick, Reading{Packets: sent(6000, 6000), Others: others})
	if math.Abs(d.Loads[0]-0.2) > 1e-9 || math.Abs(d.Loads[1]-0.7) > 1e-9 || d.Weights[1] >= d.Weights[0] {
		t.Errorf("loads %v, weights %v: want .2 and .7, and the second to get less", d.Loads, d.Weights)
	}
	if own := b.Own(); math.Abs(own[1].Sum(0, weights.Ages)-0.2) > 1e-9 {
		t.Errorf("own loads %v: want .2 without the others'", own)
	}
}

// TestMonitorWeighsByMeasured: and by predictions where no measurement came.
func TestMonitorWeighsByMeasured(t *testing.T) {
	for _, monitor := range []bool{false, true} {
		b := two(t, Settings{Monitor: monitor})
		d := b.Tick(2*tick, Reading{Packets: sent(6000, 6000), Measured: []float64{0.9, math.NaN()}})
		if less := d.Weights[0] < d.Weights[1]; less != monitor {
			t.Errorf("monitor %v: weights %v for measured .9 and predicted .2", monitor, d.Weights)
		}
	}
}

// TestModelLearns: predictions follow the measured loads of the tick before, but for services of which
// the cost is stated; a monitor keeps its costs.
func TestModelLearns(t *testing.T) {
	for label, s := range map[string]Settings{"learns": {}, "stated": {Stated: []int{0}}, "monitor": {Monitor: true}} {
		b := two(t, s)
		b.SetCost(1, 0, weights.Fixed(2000))
		for n := uint64(2); n < 400; n++ {
			measured := []float64{0.4, math.NaN()} // of packets that are predicted to load .2
			if n == 2 {
				measured = nil // there was no packet
			}
			b.Tick(time.Duration(n)*tick, Reading{Packets: sent((n-1)*6000, (n-1)*6000), Measured: measured})
		}
		want := 1000.0
		if label == "learns" {
			want = 2000
		}
		if got, other := b.CostNow(0, 0), b.CostNow(1, 0); math.Abs(got-want) > 20 || other != 2000 {
			t.Errorf("%s: costs %v and %v ns, want %v and 2000", label, got, other, want)
		}
		if c := b.Cost(0, 0); math.Abs(c.At(2e5)-want) > 20 || c.At(1e3) != 1000 {
			t.Errorf("%s: costs %v", label, c)
		}
	}
}

// TestOverloadWishesOnce in its patience, until a replica joins; a spare core's load does
// not count.
func TestOverloadWishesOnce(t *testing.T) {
	b := two(t, Settings{Overload: 0.95, Patience: time.Second})
	b.Leave(1)
	packets, wishes := uint64(0), 0
	for n := 2; n <= 50; n++ { // 1.5 s
		packets += 29_000 // .967 of a core
		if b.Tick(time.Duration(n)*tick, Reading{Packets: sent(packets, 0)}).Enlarge {
			wishes++
		}
	}
	if wishes != 2 {
		t.Errorf("%d wishes in 1.5 s with a patience of 1 s, want 2", wishes)
	}
	b.Join(1)
	if b.Tick(60*tick, Reading{Packets: sent(packets+10*29_000, 0)}).Enlarge {
		t.Error("a wish after the replica joined: the average is .48")
	}
	packets += 10 * 29_000
	wishes = 0
	for n := uint64(1); n <= 20; n++ {
		if b.Tick(time.Duration(60+n)*tick, Reading{Packets: sent(packets+n*29_000, n*29_000)}).Enlarge {
			wishes++
		}
	}
	if wishes != 1 {
		t.Errorf("%d wishes for two cores that are full", wishes)
	}
	calm := two(t, Settings{})
	for n := uint64(2); n < 20; n++ {
		if calm.Tick(time.Duration(n)*tick, Reading{Packets: sent(n*60_000, n*60_000)}).Enlarge {
			t.Error("a wish without a bound")
		}
	}
}

// TestBurstIsNoOverload: two ticks without a packet, and then all the late ones, are no reason for a
// replica, even if it takes two ticks.
func TestBurstIsNoOverload(t *testing.T) {
	b := two(t, Settings{Overload: 0.95, Patience: time.Second})
	at, packets := tick, uint64(0)
	for n := range 100 {
		at += tick
		due := uint64(0.9 * (at - tick).Seconds() * 1e6)
		switch n % 10 {
		case 2, 3:
		case 4:
			packets += (due - packets) / 2
		default:
			packets = due
		}
		if b.Tick(at, Reading{Packets: sent(packets, packets)}).Enlarge {
			t.Fatalf("tick %d: a wish at .9, by bursts", n)
		}
	}
}

func TestAbsurdCosts(t *testing.T) {
	_, err := New(Settings{Costs: weights.Costs{{weights.Fixed(0)}}})
	if err == nil || !strings.Contains(err.Error(), "costs 0 ns a packet") {
		t.Errorf("got %v", err)
	}
}
