package responder

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"proffer/lab/trace"
)

const ms = time.Millisecond

// slowCores is the definition: from event to event it gives every running
// request its share of what is left.
func slowCores(m Machine, arrivals []trace.Arrival) []Completion {
	type request struct {
		job  int
		left float64
	}
	var hand []request // in order of arrival; the first m.running() run
	var finished []Completion
	now := 0.0
	for i := 0; i < len(arrivals) || len(hand) > 0; {
		n := min(len(hand), m.running())
		rate := m.speed()
		if n > m.Cores {
			rate *= float64(m.Cores) / float64(n)
		}
		first, step := -1, 0.0
		for j, r := range hand[:n] {
			if first < 0 || r.left/rate < step {
				first, step = j, r.left/rate
			}
		}
		arrives := i < len(arrivals) && (first < 0 || float64(arrivals[i].At) < now+step)
		if arrives {
			step = float64(arrivals[i].At) - now
		}
		now += step
		for j := range hand[:n] {
			hand[j].left -= step * rate
		}
		if arrives {
			hand = append(hand, request{i, float64(arrivals[i].Service)})
			i++
		} else {
			finished = append(finished, Completion{hand[first].job, round(now)})
			hand = slices.Delete(hand, first, first+1)
		}
	}
	return finished
}

// fastCores drives Cores as a server does: it looks now and then, always late.
func fastCores(m Machine, arrivals []trace.Arrival, rng *rand.Rand) []Completion {
	cores := NewCores(m)
	var finished []Completion
	for _, a := range arrivals {
		if rng.IntN(3) == 0 {
			finished = append(finished, cores.Advance(a.At)...)
		}
		cores.Arrive(a.At, a.Service)
	}
	for next, ok := cores.Next(); ok; next, ok = cores.Next() {
		finished = append(finished, cores.Advance(next+time.Duration(rng.IntN(int(50*ms))))...)
	}
	return finished
}

func TestCoresAreTheDefinition(t *testing.T) {
	const seed = 4
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 600 {
		m := Machine{Cores: 1 + rng.IntN(4), Workers: 1 + rng.IntN(12), Discipline: Discipline(rng.IntN(2)), Speed: []float64{0, 0.5, 2.5}[rng.IntN(3)]}
		rate := (0.3 + rng.Float64()) * m.speed() * float64(min(m.Cores, m.Workers)) / 0.020
		arrivals := trace.Poisson(rng.Uint64(), 200, rate, 20*ms)
		want, got := slowCores(m, arrivals), fastCores(m, arrivals, rng)
		if err := sameCompletions(got, want); err != nil {
			t.Fatalf("round %d (seed %d), %+v: %v", round, seed, m, err)
		}
	}
}

// sameCompletions allows two nanoseconds, the slow twin's own rounding.
func sameCompletions(got, want []Completion) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d completions, want %d", len(got), len(want))
	}
	if !slices.IsSortedFunc(got, func(a, b Completion) int { return cmp.Compare(a.At, b.At) }) {
		return fmt.Errorf("completions go back in time")
	}
	byJob := func(a, b Completion) int { return cmp.Compare(a.Job, b.Job) }
	slices.SortFunc(got, byJob)
	slices.SortFunc(want, byJob)
	for i, g := range got {
		if g.Job != want[i].Job || (g.At-want[i].At).Abs() > 2 {
			return fmt.Errorf("got job %d at %v, want job %d at %v", g.Job, g.At, want[i].Job, want[i].At)
		}
	}
	return nil
}

func TestCoresByHand(t *testing.T) {
	for _, c := range []struct {
		name    string
		machine Machine
		want    []Completion
	}{ // three requests of 10, 20 and 30 ms, all at 0
		{"one core shared", Machine{Cores: 1, Workers: 9, Discipline: Sharing}, []Completion{{0, 30 * ms}, {1, 50 * ms}, {2, 60 * ms}}},
		{"two cores shared", Machine{Cores: 2, Workers: 9, Discipline: Sharing}, []Completion{{0, 15 * ms}, {1, 25 * ms}, {2, 35 * ms}}},
		{"one worker", Machine{Cores: 2, Workers: 1, Discipline: Sharing}, []Completion{{0, 10 * ms}, {1, 30 * ms}, {2, 60 * ms}}},
		{"two cores fifo", Machine{Cores: 2, Workers: 9, Discipline: FIFO}, []Completion{{0, 10 * ms}, {1, 20 * ms}, {2, 40 * ms}}},
		{"one worker of fifo", Machine{Cores: 2, Workers: 1, Discipline: FIFO}, []Completion{{0, 10 * ms}, {1, 30 * ms}, {2, 60 * ms}}},
	} {
		cores := NewCores(c.machine)
		for _, demand := range []time.Duration{10 * ms, 20 * ms, 30 * ms} {
			cores.Arrive(0, demand)
		}
		if got := cores.Advance(time.Hour); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// TestSpeedChangesAtAnInstant: two requests of 30 ms share a core for 20 ms, at a speed of 2;
// then each has 10 ms left, which takes 40 ms on half a core at a speed of a half.
func TestSpeedChangesAtAnInstant(t *testing.T) {
	cores := NewCores(Machine{Cores: 1, Workers: 9, Speed: 2})
	cores.Arrive(0, 30*ms)
	cores.Arrive(0, 30*ms)
	cores.SetSpeed(20*ms, 0.5)
	want := []Completion{{0, 60 * ms}, {1, 60 * ms}}
	if got := cores.Advance(time.Hour); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCoresCountWhatTheyHold(t *testing.T) {
	cores := NewCores(Machine{Cores: 2, Workers: 3})
	for range 5 {
		cores.Arrive(0, 10*ms)
	}
	if cores.InHand() != 5 || cores.InService() != 3 {
		t.Errorf("5 arrived at 3 workers: %d in hand, %d in service", cores.InHand(), cores.InService())
	}
	cores.Advance(15 * ms) // the first three end together
	if cores.InHand() != 2 || cores.InService() != 2 {
		t.Errorf("3 done: %d in hand, %d in service", cores.InHand(), cores.InService())
	}
	cores.Advance(25 * ms)
	if _, ok := cores.Next(); ok || cores.InHand() != 0 {
		t.Errorf("all done: %d in hand", cores.InHand())
	}
}

func TestNoDemandEndsAtOnce(t *testing.T) {
	cores := NewCores(Machine{Cores: 1, Workers: 2})
	cores.Arrive(0, 10*ms)
	cores.Arrive(3*ms, 0)
	want := []Completion{{1, 3 * ms}}
	if got := cores.Advance(3 * ms); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
