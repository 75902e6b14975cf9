package weights

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// cold is a chain as measured (BPF_PROG_RUN against real packets): twice to four times as
// dear at low rates.
func cold(busy, extra, half float64) func(float64) float64 {
	return func(perSecond float64) float64 { return busy * (1 + extra/(1+perSecond/half)) }
}

func TestCurveIsStraightBetweenOctaves(t *testing.T) {
	c := Fixed(700)
	c[3], c[4] = 400, 600
	for rate, want := range map[float64]float64{0: 700, 1024: 700, 8192: 400, 8192 * math.Sqrt2: 500, 16384: 600, 1e12: 700} {
		if got := c.At(rate); math.Abs(got-want) > 1e-6 {
			t.Errorf("%v packets a second cost %v ns, want %v", rate, got, want)
		}
	}
}

// TestCurveThroughMeasurements: straight between two over the logarithm of the rate, level outside.
func TestCurveThroughMeasurements(t *testing.T) {
	c := Through(Measured{4096, 900}, Measured{16384, 500}, Measured{1e5, 400})
	for rate, want := range map[float64]float64{1: 900, 2048: 900, 4096: 900, 8192: 700, 16384: 500, 1 << 17: 400, 1e9: 400} {
		if got := c.At(rate); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v packets a second cost %v ns, want %v", rate, got, want)
		}
	}
	if c := Through(Measured{5000, 300}); c != Fixed(300) {
		t.Errorf("one measurement gives %v, want 300 at all rates", c)
	}
	if c := Average(Fixed(300), Fixed(400), Fixed(800)); math.Abs(c.At(9999)-500) > 1e-9 {
		t.Errorf("the average of 300, 400 and 800 is %v", c.At(9999))
	}
}

// TestStatedCostsStay: Learn moves the costs of the services that are measured, and no others.
func TestStatedCostsStay(t *testing.T) {
	m := NewMeter(fixed(1000, 1000, 1000, 1000))
	m.Fix(1)
	m.Read(tick, sent(6000, 6000, 6000, 6000))
	m.Learn(0, 0.6)
	if a, b, c := m.CostNow(0, 0), m.CostNow(0, 1), m.CostNow(1, 0); a < 1001 || b != 1000 || c != 1000 {
		t.Errorf("costs %v, %v and at the other core %v, want the first alone to be above 1000", a, b, c)
	}
	m.SetCost(1, 1, Fixed(7))
	if got := m.CostNow(1, 1); got != 7 {
		t.Errorf("cost %v, want 7 as it was set", got)
	}
}

// TestCostsAreLearned: two chains below 1 µs, of which only the loads of their cores
// together are measured, with an error. The figures of a busy core are wrong by up to
// 14 points; learned, costs are right to 4 at every rate.
func TestCostsAreLearned(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 20))
	truth := []func(float64) float64{cold(300, 2, 400_000), cold(500, 1, 300_000)}
	m := NewMeter(Costs{{Fixed(300), Fixed(500)}})
	packets := [][]Packets{make([]Packets, 2)}
	worst := [2]float64{} // before and after
	for step := range 12_000 {
		rates := [2]float64{math.Exp(rng.Float64()*5.3 + 8), math.Exp(rng.Float64()*5.3 + 8)} // 3,000 to 600,000
		load := 0.0
		for k, rate := range rates {
			packets[0][k][0] += uint64(rate * tick.Seconds())
			load += truth[k](rates[0]+rates[1]) * rate / 1e9
		}
		if load > 1 { // a core that is full shows no cost
			continue
		}
		at := time.Duration(step+1) * tick
		m.last = at - tick
		m.Read(at, packets)
		off := math.Abs(m.Sample(0).Value - load)
		if step < 100 {
			worst[0] = max(worst[0], off)
			continue
		}
		if step > 9000 {
			worst[1] = max(worst[1], off)
		}
		m.Learn(0, load+0.01*rng.NormFloat64())
	}
	if worst[0] < 0.1 || worst[1] > 0.04 {
		t.Errorf("predictions are off by up to %.3f, learned by %.3f (seed %d); want .04", worst[0], worst[1], seed)
	}
}

// TestFullCoresTeachNothing: a core that is full does less than is sent to it, which
// looks cheap.
func TestFullCoresTeachNothing(t *testing.T) {
	m := NewMeter(Costs{{Fixed(1000)}})
	packets := [][]Packets{make([]Packets, 1)}
	packets[0][0][0] = 60_000 // 2 cores of work
	m.Read(tick, packets)
	for _, busy := range []float64{1, 0.99, math.NaN(), math.Inf(1), -1} {
		m.Learn(0, busy)
	}
	if got := m.Sample(0).Value; math.Abs(got-2) > 1e-9 {
		t.Errorf("load %v, want 2", got)
	}
	packets[0][0][0] += 60_000
	m.Read(2*tick, packets)
	if got := m.Sample(0).Value; math.Abs(got-2) > 1e-9 {
		t.Errorf("load %v after lessons of a full core, want 2", got)
	}
}

func TestAbsurdCostsAreRefused(t *testing.T) {
	for _, ns := range []float64{0, -5, math.NaN(), math.Inf(1), 2e9} {
		err := Costs{{Fixed(700)}, {Fixed(700), Fixed(ns)}}.Check()
		if err == nil || !strings.Contains(err.Error(), "service 1 at core 1 costs") {
			t.Errorf("cost %v: got %v", ns, err)
		}
	}
	if err := (Costs{{Fixed(0.5), Fixed(1e6)}}).Check(); err != nil {
		t.Error(err)
	}
}
