package control

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// queue is a server of some cores, first come first served, with exponential service times.
type queue struct {
	random   *rand.Rand
	mean     float64 // service time, s
	arrives  float64 // rate
	cores    int
	now      float64
	next     float64 // arrival
	ends     ends    // of the requests in service
	waiting  int
	answered uint64
}

type ends []float64

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i] < e[j] }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(float64)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (q *queue) begin() { heap.Push(&q.ends, q.now+q.mean*q.random.ExpFloat64()) }

// run goes on to an instant.
func (q *queue) run(to float64) {
	for {
		end := math.Inf(1)
		if len(q.ends) > 0 {
			end = q.ends[0]
		}
		switch {
		case min(end, q.next) > to:
			q.now = to
			return
		case q.next < end:
			q.now = q.next
			q.next += q.random.ExpFloat64() / q.arrives
			if len(q.ends) < q.cores {
				q.begin()
			} else {
				q.waiting++
			}
		default:
			q.now = end
			heap.Pop(&q.ends)
			q.answered++
			if q.waiting > 0 {
				q.waiting--
				q.begin()
			}
		}
	}
}

// sampled is the gauge of a queue after some time.
func sampled(q *queue, seconds float64) *Gauge {
	g := &Gauge{}
	for q.now < seconds {
		q.run(q.now + 0.02)
		g.Observe(time.Duration(q.now*1e9), float64(len(q.ends)), q.answered)
	}
	return g
}

// TestGauge: requests that queue, at a load of nine tenths or of three, short ones or long, do not
// change the service time that is learned, and its error is the one stated: 95 of 100 means are
// within two of it, where 87 must be.
func TestGauge(t *testing.T) {
	const runs = 300
	for _, c := range []struct {
		mean, load float64
		cores      int
	}{{0.001, 0.9, 2}, {0.02, 0.3, 1}, {0.02, 0.9, 2}, {0.2, 0.9, 4}} {
		right, sum := 0, 0.0
		var errors []float64
		for seed := range uint64(runs) {
			random := rand.New(rand.NewPCG(seed, 1))
			q := &queue{random: random, mean: c.mean, arrives: c.load * float64(c.cores) / c.mean, cores: c.cores}
			speed, known := sampled(q, 30).Speed()
			if !known {
				t.Fatalf("%+v: nothing is learned", c)
			}
			sum += speed.Mean.Seconds()
			errors = append(errors, speed.Error)
			if math.Abs(speed.Mean.Seconds()-c.mean) <= 2*speed.Error*speed.Mean.Seconds() {
				right++
			}
		}
		slices.Sort(errors)
		bias := sum/runs/c.mean - 1
		t.Logf("%+v: bias %+.1f %%, %d of %d within twice the error, which is %.1f %% in the middle", c, 100*bias, right, runs, 100*errors[runs/2])
		if math.Abs(bias) > 0.05 || right < runs*87/100 || errors[runs/2] > 0.25 {
			t.Errorf("%+v: bias %+.1f %%, %d of %d within twice the error of %.1f %%", c, 100*bias, right, runs, 100*errors[runs/2])
		}
	}
}

// TestGaugeKeeps: without requests nothing is learned, and nothing forgotten; samples far apart, and
// counts that begin again, are left out.
func TestGaugeKeeps(t *testing.T) {
	g, at := &Gauge{}, time.Duration(0)
	observe := func(times int, step time.Duration, serving float64, answers, answered uint64) {
		for range times {
			at += step
			answered += answers
			g.Observe(at, serving, answered)
		}
	}
	want := func(label string, mean time.Duration) {
		t.Helper()
		speed, known := g.Speed()
		if known != (mean > 0) || (speed.Mean-mean).Abs() > time.Microsecond {
			t.Errorf("%s: %+v (%v), want %v", label, speed, known, mean)
		}
	}
	observe(100, 20*time.Millisecond, 0, 0, 0)
	want("no requests", 0)
	observe(1, 20*time.Millisecond, 1, 0, 0)
	observe(1000, 20*time.Millisecond, 1, 2, 0)
	before, _ := g.Speed()
	if math.Abs(before.Mean.Seconds()-0.01) > 0.0001 || before.Error > 0.01 {
		t.Errorf("50 answers a second at one request in service: %+v", before)
	}
	answered := uint64(2000)
	observe(14, 20*time.Millisecond, 0, 0, answered) // this window ends
	before, _ = g.Speed()
	observe(1000, 20*time.Millisecond, 0, 0, answered)
	want("an hour without", before.Mean)
	observe(100, time.Second, 7, 1, answered)
	want("samples far apart", before.Mean)
	observe(2, 20*time.Millisecond, 0, 0, 0)
	g.Observe(at+20*time.Millisecond, 0, 0)
	if speed, _ := g.Speed(); speed.Mean > 2*before.Mean {
		t.Errorf("after the counts began again: %+v, want about %+v", speed, before)
	}
}
