package proof

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"proffer/lab/sim"
	"proffer/lab/sim/policies"
	"proffer/lab/trace"
	"proffer/policy"
	"proffer/topo"
)

const partsSeed = 17

func TestHopsAreAHeap(t *testing.T) {
	rng := rand.New(rand.NewPCG(partsSeed, 0))
	var h sim.Hops
	h.Order = math.MaxUint32 - 500 // it may wrap
	var want []sim.Coming
	for range 10_000 {
		if rng.IntN(2) == 0 || len(want) == 0 {
			at := rng.Int64N(50)
			h.Push(at, sim.Data, int32(len(want)))
			want = append(want, sim.Coming{At: at, Order: h.Order, Kind: sim.Data, Request: int32(len(want))})
			continue
		}
		first := 0
		for i, e := range want {
			if e.At < want[first].At || e.At == want[first].At && int32(e.Order-want[first].Order) < 0 {
				first = i
			}
		}
		if got := h.Pop(); got != want[first] {
			t.Fatalf("popped %+v, want %+v (seed %d)", got, want[first], partsSeed)
		}
		want = slices.Delete(want, first, first+1)
	}
}

func TestAlarmsAndLeast(t *testing.T) {
	rng := rand.New(rand.NewPCG(partsSeed, 1))
	for _, n := range []int{1, 2, 3, 7, 64, 100} {
		a, l := sim.NewAlarms(n), sim.NewLeast(n)
		times, keys := make([]int64, n), make([]float64, n)
		for i := range n {
			times[i], keys[i] = sim.Never, math.Inf(1)
		}
		for range 2000 {
			i := rng.IntN(n)
			times[i], keys[i] = rng.Int64N(10), float64(rng.IntN(6))
			if rng.IntN(4) == 0 {
				times[i], keys[i] = sim.Never, math.Inf(1)
			}
			a.Set(int32(i), times[i])
			l.Set(int32(i), keys[i])
			at := slices.Min(times)
			if a.First() != at || at != sim.Never && int(a.Earliest()) != slices.Index(times, at) {
				t.Fatalf("%v: first %d of %d (seed %d)", times, a.First(), a.Earliest(), partsSeed)
			}
			word := rng.Uint64()
			want := pick(keys, word)
			if slices.Min(keys) == math.Inf(1) {
				want = sim.None
			}
			if got := l.Choose(word); l.Best() != slices.Min(keys) || int(got) != want {
				t.Fatalf("%v: least %v of %d, want %d (seed %d)", keys, l.Best(), got, want, partsSeed)
			}
		}
		for i := range keys {
			keys[i] = float64(rng.IntN(3))
		}
		l.SetAll(keys)
		if word := rng.Uint64(); int(l.Choose(word)) != pick(keys, word) {
			t.Fatalf("after setAll %v: %d (seed %d)", keys, l.Choose(word), partsSeed)
		}
	}
}

// TestLeastInTurn: of the servers with the least key the one is chosen that changed longest ago;
// of those that never did, the first of the order.
func TestLeastInTurn(t *testing.T) {
	rng := rand.New(rand.NewPCG(partsSeed, 2))
	for _, n := range []int{1, 2, 3, 7, 64, 100} {
		l := sim.NewLeast(n)
		order := rng.Perm(n)
		l.InTurn(order)
		keys, turns := make([]float64, n), make([]int, n)
		for turn, i := range order {
			keys[i], turns[i] = math.Inf(1), turn-n
		}
		for k := range 3000 {
			i := rng.IntN(n)
			keys[i] = float64(rng.IntN(3))
			switch {
			case rng.IntN(8) == 0:
				keys[i] = math.Inf(1)
				l.Set(int32(i), keys[i])
			case rng.IntN(100) == 0:
				l.SetAll(keys)
			case rng.IntN(3) == 0:
				l.Set(int32(i), keys[i])
			default:
				turns[i] = k + 1
				l.Change(int32(i), keys[i])
			}
			want := sim.None
			for j, key := range keys {
				if key != math.Inf(1) && (want == sim.None || key < keys[want] || key == keys[want] && turns[j] < turns[want]) {
					want = j
				}
			}
			if got := l.Choose(rng.Uint64()); int(got) != want {
				t.Fatalf("%v, changed at %v: %d, want %d (seed %d)", keys, turns, got, want, partsSeed)
			}
		}
	}
}

func TestCandidatesAreThePolicys(t *testing.T) {
	for members := 1; members < 12; members++ {
		for n := 1; n <= min(members, topo.MaxChoices); n++ {
			for h := range uint64(300) {
				list := make([]int32, n)
				sim.Candidates(list, policy.Mix(h), members)
				for i, want := range policy.Candidates(policy.Mix(h), members, n) {
					if int(list[i]) != want {
						t.Fatalf("%d of %d, hash %d: %v, place %d should be %d", n, members, h, list, i, want)
					}
				}
			}
		}
	}
}

// TestRequestsAreTheTestbeds: arrivals and services are those of trace.Poisson.
func TestRequestsAreTheTestbeds(t *testing.T) {
	mean := 190 * time.Millisecond
	clock := sim.NewClock(sim.Poisson(500), partsSeed)
	service := sim.NewSampler(sim.Exponential(mean), partsSeed, sim.ServiceStream)
	for i, want := range trace.Poisson(partsSeed, 10_000, 500, mean) {
		at, _ := clock.Next()
		if got := (trace.Arrival{At: dur(at), Service: dur(int64(service.Draw()))}); got != want {
			t.Fatalf("request %d (seed %d): %+v, want %+v", i, partsSeed, got, want)
		}
	}
}

func TestDistributionsHaveTheirMoments(t *testing.T) {
	const n = 300_000
	ms := time.Millisecond
	for _, c := range []struct {
		d  sim.Distribution
		sd float64
	}{
		{sim.Exponential(100 * ms), 100},
		{sim.Lognormal(100*ms, 30*ms), 30},
		{sim.Lognormal(100*ms, 150*ms), 150},
		{sim.Hyperexponential(100*ms, 100*ms), 100},
		{sim.Hyperexponential(100*ms, 200*ms), 200},
		{sim.Pareto(100*ms, 4), 100 / math.Sqrt(8)},
		{sim.Weibull(100*ms, 2), 100 * math.Sqrt(4/math.Pi-1)},
		{sim.Weibull(100*ms, 0.5), 100 * math.Sqrt(5)},
		{sim.Bimodal(50*ms, 550*ms, 0.1), 150},
		{sim.Sampled([]time.Duration{50 * ms, 50 * ms, 200 * ms}), 50 * math.Sqrt2},
		{sim.Deterministic(100 * ms), 0},
		{sim.Listed([]time.Duration{50 * ms, 150 * ms}), 50},
	} {
		s := sim.NewSampler(c.d, partsSeed, sim.ServiceStream)
		sum, squares := 0.0, 0.0
		for range n {
			x := s.Draw() / 1e6
			sum += x
			squares += x * x
		}
		mean := sum / n
		sd := math.Sqrt(max(0, squares/n-mean*mean))
		if c.d.Mean != 100*ms { // stated once, as policies ask for it with every probe
			t.Errorf("%+v: its mean is %v", c.d.Kind, c.d.Mean)
		}
		if math.Abs(mean-100) > 1.5 || math.Abs(sd-c.sd) > 0.02*c.sd+0.01 {
			t.Errorf("%+v (seed %d): mean %.2f, deviation %.2f ms, want 100 and %v", c.d, partsSeed, mean, sd, c.sd)
		}
	}
}

// TestTails: the share of the times above some multiples of the mean is theory's.
func TestTails(t *testing.T) {
	const n = 1_000_000
	ms := time.Millisecond
	weibull := func(shape float64) func(float64) float64 {
		return func(x float64) float64 { return math.Exp(-math.Pow(x*math.Gamma(1+1/shape), shape)) }
	}
	for _, c := range []struct {
		d     sim.Distribution
		above func(x float64) float64 // of the mean
	}{
		{sim.Pareto(100*ms, 1.5), func(x float64) float64 { return math.Pow(3*x, -1.5) }},
		{sim.Pareto(100*ms, 3), func(x float64) float64 { return math.Pow(1.5*x, -3) }},
		{sim.Weibull(100*ms, 0.5), weibull(0.5)},
		{sim.Weibull(100*ms, 1), weibull(1)},
		{sim.Bimodal(50*ms, 550*ms, 0.1), func(x float64) float64 {
			if x < 5.5 {
				return 0.1
			}
			return 0
		}},
		{sim.Sampled([]time.Duration{50 * ms, 50 * ms, 50 * ms, 250 * ms}), func(x float64) float64 {
			if x < 2.5 {
				return 0.25
			}
			return 0
		}},
	} {
		s := sim.NewSampler(c.d, partsSeed, sim.ServiceStream)
		multiples, above := [...]float64{1, 2, 5, 10, 20}, [5]float64{}
		for range n {
			x := s.Draw()
			for i, m := range multiples {
				if x > m*100e6 {
					above[i]++
				}
			}
		}
		for i, m := range multiples {
			want := c.above(m)
			if got := above[i] / n; math.Abs(got-want) > 4*math.Sqrt(want*(1-want)/n) {
				t.Errorf("%+v (seed %d): %v of the times above %v means, want %v", c.d, partsSeed, got, m, want)
			}
		}
	}
}

// TestRatesChange: the share of arrivals in each step is the step's.
func TestRatesChange(t *testing.T) {
	early, none, late := 0, 0, 0
	c := sim.NewClock(sim.Stepped(sim.Step{Lasting: 10 * time.Second, PerSecond: 100}, sim.Step{Lasting: 5 * time.Second, PerSecond: 0}, sim.Step{Lasting: 0, PerSecond: 1000}), partsSeed)
	for {
		at, _ := c.Next()
		switch {
		case at < 10e9:
			early++
		case at < 15e9:
			none++
		case at < 25e9:
			late++
		}
		if at >= 25e9 {
			break
		}
	}
	if math.Abs(float64(early)-1000) > 120 || none != 0 || math.Abs(float64(late)-10_000) > 400 {
		t.Errorf("%d, %d and %d arrivals (seed %d), want about 1000, 0 and 10000", early, none, late, partsSeed)
	}
	day := sim.NewClock(sim.Diurnal(100, 500, time.Minute), partsSeed)
	morning, noon := 0, 0
	for {
		at, _ := day.Next()
		if at >= 120e9 {
			break
		}
		switch at % 60e9 / 5e9 {
		case 0, 11:
			morning++
		case 5, 6:
			noon++
		}
	}
	if ratio := float64(noon) / float64(morning); ratio < 3.5 || ratio > 5 {
		t.Errorf("%d arrivals at noon, %d around midnight (seed %d)", noon, morning, partsSeed)
	}
	list := sim.NewClock(sim.At([]time.Duration{3, 5}), partsSeed)
	if at, ok := list.Next(); at != 3 || !ok {
		t.Error("a listed arrival is not at its instant")
	}
	list.Next()
	if _, ok := list.Next(); ok {
		t.Error("a list does not end")
	}
}

func TestLogarithm(t *testing.T) {
	for ns := 1000.0; ns < 1e15; ns *= 1.0007 {
		want := min(254, math.Floor(8*math.Log2(ns/1000)))
		if got := float64(policies.Logarithm(ns)); got != want {
			t.Fatalf("%v ns: %v, want %v", ns, got, want)
		}
	}
	if policies.Logarithm(0) != 0 || policies.Logarithm(3) != 0 || policies.Logarithm(1e30) != 254 {
		t.Error("what lies outside the scale is not at its ends")
	}
}

// TestTokens: fastest class first, newest first inside it, also those of one
// server, as many as reported but no more than the cores, none after a busy report.
func TestTokens(t *testing.T) {
	farm := []sim.Server{{Cores: 1}, {Cores: 2}, {Cores: 2}, {Cores: 1}}
	k := policies.NewTokens(farm)
	k.Add(1, 102)
	k.Add(1, 102)
	k.Add(0, 100) // same class, newer
	k.Add(1, 101) // newer still; it has two cores, so its first report is forgotten
	k.Add(2, 90)  // faster, but busy now
	k.Drop(2)
	k.Add(3, 105) // slower
	var got []int32
	for range 5 {
		got = append(got, k.Take())
	}
	if want := []int32{1, 0, 1, 3, sim.None}; !slices.Equal(got, want) {
		t.Errorf("took %v, want %v", got, want)
	}
}
