package responder

import (
	"math"
	"testing"
	"time"

	"proffer/lab/trace"
)

// meanResponse runs arrivals to the end, in seconds.
func meanResponse(t *testing.T, m Machine, arrivals []trace.Arrival) float64 {
	t.Helper()
	cores := NewCores(m)
	for _, a := range arrivals {
		cores.Arrive(a.At, a.Service)
	}
	finished := cores.Advance(math.MaxInt64)
	if len(finished) != len(arrivals) {
		t.Fatalf("%d of %d requests finished", len(finished), len(arrivals))
	}
	seen := make([]bool, len(arrivals))
	sum := 0.0
	for _, f := range finished {
		if seen[f.Job] {
			t.Fatalf("request %d finished twice", f.Job)
		}
		seen[f.Job] = true
		response := f.At - arrivals[f.Job].At
		if m.running() == m.Cores && response+1 < arrivals[f.Job].Service {
			t.Fatalf("request %d took %v, less than its service %v", f.Job, response, arrivals[f.Job].Service)
		}
		sum += response.Seconds()
	}
	return sum / float64(len(arrivals))
}

// fixed gives every arrival the same service.
func fixed(arrivals []trace.Arrival, service time.Duration) []trace.Arrival {
	for i := range arrivals {
		arrivals[i].Service = service
	}
	return arrivals
}

// Mean response times in units of the mean service, at load ρ. Processor sharing
// on one core does not care how services are distributed, FIFO does: that the
// two disciplines differ exactly there is the point.
func TestCoresMeetQueueingTheory(t *testing.T) {
	const (
		seed = 5
		n    = 400_000
		rho  = 0.7
		many = 1 << 30
	)
	one := trace.Poisson(seed, n, rho/0.020, 20*ms)
	two := trace.Poisson(seed, n, 2*rho/0.020, 20*ms)
	even := fixed(trace.Poisson(seed, n, rho/0.020, 20*ms), 20*ms)
	for _, c := range []struct {
		name     string
		machine  Machine
		arrivals []trace.Arrival
		want     float64
	}{
		{"M/M/1-PS", Machine{Cores: 1, Workers: many, Discipline: Sharing}, one, 1 / (1 - rho)},
		{"M/D/1-PS", Machine{Cores: 1, Workers: many, Discipline: Sharing}, even, 1 / (1 - rho)},
		{"M/M/1", Machine{Cores: 1, Workers: many, Discipline: FIFO}, one, 1 / (1 - rho)},
		{"M/D/1", Machine{Cores: 1, Workers: many, Discipline: FIFO}, even, 1 + rho/(2*(1-rho))},
		{"M/M/2-PS", Machine{Cores: 2, Workers: many, Discipline: Sharing}, two, 1 / (1 - rho*rho)},
		{"M/M/2", Machine{Cores: 2, Workers: many, Discipline: FIFO}, two, 1 / (1 - rho*rho)},
		{"M/M/2 of 2 workers", Machine{Cores: 2, Workers: 2, Discipline: Sharing}, two, 1 / (1 - rho*rho)},
	} {
		got := meanResponse(t, c.machine, c.arrivals) / 0.020
		if math.Abs(got/c.want-1) > 0.03 {
			t.Errorf("%s (seed %d): mean response %.4f services, want %.4f", c.name, seed, got, c.want)
		}
	}
}

// A core that has work works: whatever the discipline, one core is done with
// everything at the same instant.
func TestDisciplinesConserveWork(t *testing.T) {
	const seed = 6
	arrivals := trace.Poisson(seed, 5000, 0.95/0.020, 20*ms)
	ends := map[Machine]time.Duration{}
	for _, m := range []Machine{{Cores: 1, Workers: 1}, {Cores: 1, Workers: 7}, {Cores: 1, Workers: 1 << 30}, {Cores: 1, Workers: 7, Discipline: FIFO}} {
		cores := NewCores(m)
		for _, a := range arrivals {
			cores.Arrive(a.At, a.Service)
		}
		finished := cores.Advance(math.MaxInt64)
		ends[m] = finished[len(finished)-1].At
	}
	want := ends[Machine{Cores: 1, Workers: 1, Discipline: Sharing}]
	for m, end := range ends {
		if (end - want).Abs() > time.Microsecond {
			t.Errorf("%+v (seed %d) ends at %v, want %v", m, seed, end, want)
		}
	}
}
