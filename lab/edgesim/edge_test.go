package edgesim

import (
	"fmt"
	"hash/fnv"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"proffer/weights"
)

const seed = 5

func policies() []Policy {
	return []Policy{
		{Kind: Model, PID: weights.PublishedGains()},
		{Kind: Model, PID: weights.TunedGains()},
		{Kind: Monitor, PID: weights.PublishedGains(), Noise: ReportNoise},
		{Kind: Static},
		{Kind: Model, Learns: true},
	}
}

// mixed is a farm and traffic with a bit of everything, small enough for a twin.
func mixed() (Farm, Traffic) {
	us := time.Microsecond
	f := Farm{Ring: 4, Warm: 0.1, Jitter: 0.3, Overload: 0.8, Servers: []Server{
		{Cores: 2, Cost: []time.Duration{40 * us, 90 * us}},
		{Cores: 1, Cost: []time.Duration{30 * us, 60 * us}},
		{Cores: 1, Cost: []time.Duration{50 * us, 50 * us}, Spare: true},
	}}
	t := Traffic{For: 500 * time.Millisecond, WarmUp: 100 * time.Millisecond, Classes: []Class{
		{Elephants: 3, Gap: 60 * us},
		{Service: 1, PerSecond: 900, Packets: 10, Gap: time.Millisecond},
		{PerSecond: 50, Even: true, Packets: 200, Tail: 1.7, Gap: 333 * us, From: 50 * time.Millisecond},
	}}
	return f, t
}

func run(t *testing.T, f Farm, p Policy, traffic Traffic, seed uint64) Result {
	t.Helper()
	r, err := Run(f, p, traffic, seed)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPacketsAreConserved(t *testing.T) {
	f, traffic := mixed()
	offered := uint64(0)
	for _, p := range policies() {
		r := run(t, f, p, traffic, seed)
		if r.Offered != r.Served+r.Dropped+r.Waiting {
			t.Errorf("%v: %d offered, %d served, %d dropped, %d waiting", p, r.Offered, r.Served, r.Dropped, r.Waiting)
		}
		if r.Dropped == 0 || r.Served == 0 {
			t.Errorf("%v: %d served, %d dropped: want some of both", p, r.Served, r.Dropped)
		}
		if offered != 0 && r.Offered != offered {
			t.Errorf("%v meets %d packets, others %d", p, r.Offered, offered)
		}
		offered = r.Offered
	}
}

func TestSameSeedSameResult(t *testing.T) {
	f, traffic := mixed()
	for _, p := range policies() {
		a, b, c := run(t, f, p, traffic, seed), run(t, f, p, traffic, seed), run(t, f, p, traffic, seed+1)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%v: two runs of seed %d differ", p, seed)
		}
		if reflect.DeepEqual(a, c) {
			t.Errorf("%v: seeds %d and %d are the same", p, seed, seed+1)
		}
	}
	if !f.Servers[2].Spare {
		t.Error("a run changed its caller's farm")
	}
}

// TestGolden holds results still: a change here is a change of every figure.
func TestGolden(t *testing.T) {
	f, traffic := mixed()
	for i, p := range policies() {
		r := run(t, f, p, traffic, seed)
		h := fnv.New64a()
		for _, s := range r.Samples {
			for _, w := range s.Weights {
				fmt.Fprintf(h, "%.9f ", w) // what FMA leaves alike
			}
		}
		got := fmt.Sprintf("%d %d %d %v %.6f %x", r.Offered, r.Served, r.Dropped, r.Latency, r.Apart, h.Sum64())
		if got != golden5[i] {
			t.Errorf("%v (seed %d):\n got %s\nwant %s", p, seed, got, golden5[i])
		}
	}
}

var golden5 = [5]string{
	"33103 33001 98 50.962µs 0.361363 fec96fd4b255f756",
	"33103 33012 87 58.05µs 0.528530 2590e63bdb1d85b8",
	"33103 33025 73 50.526µs 0.343897 d0c4c0e99d3135f8",
	"33103 32865 232 63.649µs 0.662131 fad3cecb4d9e1740",
	"33103 33008 91 49.7µs 0.222599 6ee3f5e276425c49",
}

// TestSwappedServers: which of two servers comes first in the list changes only
// which core wins ties.
func TestSwappedServers(t *testing.T) {
	f, traffic := Heterogeneous(0.27)
	traffic.For, traffic.WarmUp = 2*time.Second, time.Second
	f.Servers[1].Cost = []time.Duration{1000}
	g := f
	g.Servers = []Server{f.Servers[1], f.Servers[0]}
	traffic.Classes = traffic.Classes[1:] // an elephant's first turn is such a tie
	for _, p := range policies() {
		a, b := run(t, f, p, traffic, seed), run(t, g, p, traffic, seed)
		if math.Abs(a.Rate/b.Rate-1) > 0.003 || math.Abs(a.Apart-b.Apart) > 0.006 {
			t.Errorf("%v (seed %d): %.0f packets/s and %.4f apart; swapped %.0f and %.4f", p, seed, a.Rate, a.Apart, b.Rate, b.Apart)
		}
	}
}

// TestMD1: Poisson packets of one cost on one core wait as Pollaczek and
// Khinchine say: ρ/(1 − ρ)/2 services.
func TestMD1(t *testing.T) {
	const cost = 1000 * time.Nanosecond
	for _, rho := range []float64{0.3, 0.6, 0.8} {
		f := Farm{Servers: nodes(1, cost), Ring: 10_000}
		traffic := Traffic{For: 4 * time.Second, WarmUp: 30 * time.Millisecond,
			Classes: []Class{{PerSecond: rho / cost.Seconds(), Packets: 1, Gap: 1}}}
		r := run(t, f, Policy{Kind: Static}, traffic, seed)
		want := float64(cost) * (1 + rho/(1-rho)/2)
		if got := float64(r.Latency); math.Abs(got/want-1) > 0.01 {
			t.Errorf("ρ = %v (seed %d): latency %.0f ns, want %.0f", rho, seed, got, want)
		}
		if r.Misjudge > 1e-3 || r.Dropped > 0 {
			t.Errorf("ρ = %v: misjudged by %v without jitter, %d dropped", rho, r.Misjudge, r.Dropped)
		}
	}
}

func TestTurnIsFair(t *testing.T) {
	weights := []float64{0.5, 0, 1.7, 0.8}
	turn, got := newTurn(weights), make([]int, 4)
	for n := 1; n <= 3000; n++ {
		got[turn.next()]++
		for i, w := range weights {
			if want := w / 3 * float64(n); math.Abs(float64(got[i])-want) > 1.5 {
				t.Fatalf("after %d flows core %d has %d, want %.1f", n, i, got[i], want)
			}
		}
	}
}

func TestRefuses(t *testing.T) {
	for want, change := range map[string]func(*Farm, *Traffic){
		"a farm needs a server":                                         func(f *Farm, _ *Traffic) { f.Servers = nil },
		"a ring of 0 packets: want at least 1":                          func(f *Farm, _ *Traffic) { f.Ring = 0 },
		"server 1 has 0 cores: want at least 1":                         func(f *Farm, _ *Traffic) { f.Servers[1].Cores = 0 },
		"service 0 costs 0s on server 1: want more than 0":              func(f *Farm, _ *Traffic) { f.Servers[1].Cost = []time.Duration{0, 1} },
		"all servers are spare: no server would take the first flow":    func(f *Farm, _ *Traffic) { f.Servers = []Server{f.Servers[2]} },
		"traffic needs a class of flows":                                func(_ *Farm, t *Traffic) { t.Classes = nil },
		"class 1: service 2: want 0 to 1":                               func(_ *Farm, t *Traffic) { t.Classes[1].Service = 2 },
		"class 1: mice of 0.5 packets: want at least 1":                 func(_ *Farm, t *Traffic) { t.Classes[1].Packets = 0.5 },
		"class 0: 3 elephants and 1 mice a second: want one of the two": func(_ *Farm, t *Traffic) { t.Classes[0].PerSecond = 1 },
		"class 0: elephants are always under way: want mice":            func(_ *Farm, t *Traffic) { t.Classes[0].Filled = true },
	} {
		f, traffic := mixed()
		f.Servers, traffic.Classes = slices.Clone(f.Servers), slices.Clone(traffic.Classes)
		change(&f, &traffic)
		if _, err := Run(f, Policy{}, traffic, seed); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}
