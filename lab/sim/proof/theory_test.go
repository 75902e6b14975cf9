package proof

import (
	"math"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"proffer/lab/sim"
)

// queueOf is a server behind one LB and no network, so that only the queue is
// seen.
func queueOf(s sim.Server, service sim.Distribution) sim.Farm {
	s.Backlog = 1 << 20
	return sim.Farm{
		Name: "one queue", LBs: 1, Servers: []sim.Server{s},
		Default: sim.Workload{Requests: 80_000, Service: service, From: 0.1, To: 1},
	}
}

// assertMean runs the farm on 20 seeds and wants the theory inside the 99 %
// interval of the mean of their means.
func assertMean(t *testing.T, f sim.Farm, rho, want float64) {
	t.Helper()
	const seeds = 20
	single, _ := sim.ParsePolicy("single")
	var means [seeds]float64
	sum := 0.0
	for i := range means {
		r, err := sim.Run(f, single, f.Load(rho), uint64(1000+i))
		if err != nil {
			t.Fatal(err)
		}
		means[i] = r.Mean
		sum += r.Mean
	}
	mean, squares := sum/seeds, 0.0
	for _, m := range means {
		squares += (m - mean) * (m - mean)
	}
	quantile := distuv.StudentsT{Sigma: 1, Nu: seeds - 1}.Quantile(0.995)
	half := quantile * math.Sqrt(squares/(seeds-1)/seeds)
	t.Logf("seeds 1000 to %d: %.3f ± %.3f ms, theory %.3f", 1000+seeds-1, mean, half, want)
	if math.Abs(mean-want) > half {
		t.Errorf("mean %.3f ± %.3f ms at 99 %%, theory says %.3f", mean, half, want)
	}
	if half > 0.05*want {
		t.Errorf("the interval ± %.3f ms is too wide to tell anything", half)
	}
}

const serviceMean = 10.0 // ms

var (
	service10 = 10 * time.Millisecond
	oneCore   = sim.Server{Cores: 1, Discipline: sim.FIFO}
)

func TestMM1(t *testing.T) {
	t.Parallel()
	for _, rho := range []float64{0.3, 0.6, 0.8} {
		assertMean(t, queueOf(oneCore, sim.Exponential(service10)), rho, serviceMean/(1-rho))
	}
}

// TestMMk: FIFO by Erlang's C; sharing has the same mean.
func TestMMk(t *testing.T) {
	t.Parallel()
	for _, k := range []int{2, 5} {
		const rho = 0.75
		load := rho * float64(k)
		wait := erlangC(k, load) * serviceMean / (float64(k) - load)
		fifo := sim.Server{Cores: k, Discipline: sim.FIFO}
		sharing := sim.Server{Cores: k, Discipline: sim.Sharing, Workers: 1 << 20}
		assertMean(t, queueOf(fifo, sim.Exponential(service10)), rho, serviceMean+wait)
		assertMean(t, queueOf(sharing, sim.Exponential(service10)), rho, serviceMean+wait)
	}
}

func erlangC(k int, load float64) float64 {
	blocked := 1.0 // Erlang B
	for n := 1; n <= k; n++ {
		blocked = load * blocked / (float64(n) + load*blocked)
	}
	return blocked / (1 - load/float64(k)*(1-blocked))
}

// TestMG1: FIFO by Pollaczek and Khinchine; sharing is insensitive to the
// distribution.
func TestMG1(t *testing.T) {
	t.Parallel()
	const rho = 0.6
	sharing := sim.Server{Cores: 1, Discipline: sim.Sharing, Workers: 1 << 20}
	for _, c := range []struct {
		service   sim.Distribution
		variation float64 // squared coefficient of
	}{
		{sim.Deterministic(service10), 0},
		{sim.Lognormal(service10, 5*time.Millisecond), 0.25},
		{sim.Hyperexponential(service10, 15*time.Millisecond), 2.25},
		{sim.Pareto(service10, 4), 0.125},
		{sim.Weibull(service10, 2), 4/math.Pi - 1},
		{sim.Bimodal(5*time.Millisecond, 55*time.Millisecond, 0.1), 2.25},
	} {
		wait := rho / (1 - rho) * (1 + c.variation) / 2 * serviceMean
		assertMean(t, queueOf(oneCore, c.service), rho, serviceMean+wait)
		assertMean(t, queueOf(sharing, c.service), rho, serviceMean/(1-rho))
	}
}

// TestSpeed: a server of speed v is one whose service is 1/v of it.
func TestSpeed(t *testing.T) {
	t.Parallel()
	fast := sim.Server{Cores: 1, Speed: 4, Discipline: sim.FIFO}
	assertMean(t, queueOf(fast, sim.Exponential(service10)), 0.5, serviceMean/4/(1-0.5))
}

// TestTandem: CPU and disk in a row are, by Burke, two queues of their own; the
// disk shares, which changes no mean of exponential services.
func TestTandem(t *testing.T) {
	t.Parallel()
	f := queueOf(oneCore, sim.Exponential(service10))
	f.Default.Stages, f.Default.IO = 2, sim.Exponential(5*time.Millisecond)
	const rho = 0.8 // of the cores; the disk's is half of it
	assertMean(t, f, rho, 10/(1-rho)+5/(1-rho/2))
}

// TestBackground: work that takes half of the cores makes the server half as
// fast.
func TestBackground(t *testing.T) {
	t.Parallel()
	f := queueOf(oneCore, sim.Exponential(service10))
	f.Background = []sim.Background{{Servers: []int{0}, Cores: 0.5}}
	assertMean(t, f, 0.3, 20/(1-0.6))
}

// TestFullServerRefuses: M/M/1/K by its stationary distribution.
func TestFullServerRefuses(t *testing.T) {
	t.Parallel()
	const rho, room = 0.9, 5
	f := queueOf(oneCore, sim.Exponential(service10))
	f.Servers[0].Backlog = room - 1
	single, _ := sim.ParsePolicy("single")
	const seeds = 20
	refused, counted := 0, 0
	for seed := range uint64(seeds) {
		r, err := sim.Run(f, single, f.Load(rho), seed)
		if err != nil {
			t.Fatal(err)
		}
		refused += r.Refused
		counted += r.Counted
		if r.Refused+len(r.Latencies) != r.Counted {
			t.Fatalf("%d refused and %d answered of %d (seed %d)", r.Refused, len(r.Latencies), r.Counted, seed)
		}
	}
	want := (1 - rho) * math.Pow(rho, room) / (1 - math.Pow(rho, room+1))
	if got := float64(refused) / float64(counted); math.Abs(got/want-1) > 0.01 {
		t.Errorf("%.4f of all refused, want %.4f (seeds 0 to %d)", got, want, seeds-1)
	}
}
