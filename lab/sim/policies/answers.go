package policies

import (
	"math"
	"slices"

	"proffer/lab/sim"
)

// The memory of prequal: an LB's pool of answers to probes, the requests in flight of
// recent answers, and a server's recent latencies.

// prober is an LB's pool.
type prober struct {
	pool   []answer // oldest first
	recent window
	worst  bool // the next removal is of the worst, not of the oldest
}

type answer struct {
	at       int64 // ns, when it came
	server   int32
	inFlight int32
	latency  float64 // ns
	service  float64 // ns, of a request alone; perfect only
	uses     int32   // left
}

// expect is the latency by the requests in flight.
func (a *answer) expect(s *sim.Server) { a.latency = a.service * s.QueueFactor(float64(a.inFlight+1)) }

// add puts an answer into the pool; the oldest gives way.
func (b *prober) add(a answer) {
	if len(b.pool) == PoolSize {
		b.pool = slices.Delete(b.pool, 0, 1)
	}
	b.pool = append(b.pool, a)
}

// use takes the server of an answer; −1: there are fewer than two.
func (b *prober) use(now int64, kind latencyKind, farm []sim.Server) int32 {
	b.pool = slices.DeleteFunc(b.pool, func(a answer) bool { return now-a.at > poolAge })
	if len(b.pool) < 2 {
		return sim.None
	}
	best := pickAnswer(b.pool, b.recent.hot(), kind)
	server := b.pool[best].server
	if b.pool[best].uses--; b.pool[best].uses <= 0 {
		b.pool = slices.Delete(b.pool, best, best+1)
	}
	for i := range b.pool {
		if b.pool[i].server == server {
			b.pool[i].inFlight++
			if kind == Perfect {
				b.pool[i].expect(&farm[server])
			}
		}
	}
	return server
}

// pickAnswer is the position of the best answer, of equals the oldest.
func pickAnswer(pool []answer, hot int32, kind latencyKind) int {
	best := 0
	for i := range pool {
		if precedes(&pool[i], &pool[best], hot, kind) {
			best = i
		}
	}
	return best
}

// precedes reports whether a is better than b.
func precedes(a, b *answer, hot int32, kind latencyKind) bool {
	coldA, coldB := a.inFlight <= hot, b.inFlight <= hot
	switch {
	case kind == Unused:
	case coldA != coldB:
		return coldA
	case coldA && a.latency != b.latency:
		return a.latency < b.latency
	}
	return a.inFlight < b.inFlight
}

// remove drops an answer, in turn the oldest and the worst.
func (b *prober) remove(kind latencyKind) {
	if len(b.pool) == 0 {
		return
	}
	at := 0
	if b.worst {
		hot := b.recent.hot()
		for i := range b.pool {
			if precedes(&b.pool[at], &b.pool[i], hot, kind) {
				at = i
			}
		}
	}
	b.worst = !b.worst
	b.pool = slices.Delete(b.pool, at, at+1)
}

// window has the numbers of requests in flight of recent answers.
type window struct {
	ring   []int32
	next   int
	sorted []int32
}

func (w *window) add(n int32) {
	if len(w.ring) < HotMemory {
		w.ring = append(w.ring, n)
	} else {
		at, _ := slices.BinarySearch(w.sorted, w.ring[w.next])
		w.sorted = slices.Delete(w.sorted, at, at+1)
		w.ring[w.next] = n
		w.next = (w.next + 1) % HotMemory
	}
	at, _ := slices.BinarySearch(w.sorted, n)
	w.sorted = slices.Insert(w.sorted, at, n)
}

// hot is the number above which a server is hot.
func (w *window) hot() int32 {
	if len(w.sorted) == 0 {
		return 0
	}
	return w.sorted[int(math.Ceil(HotQuantile*float64(len(w.sorted))))-1]
}

// latencies are those of a server's recent requests.
type latencies struct {
	ring []latency
	next int
}

type latency struct {
	inFlight int32
	ns       float64
}

const (
	LatencyMemory = 64 // requests
	LatencyFewest = 5  // that make a median
)

func (l *latencies) add(inFlight int32, ns float64) {
	if len(l.ring) < LatencyMemory {
		l.ring = append(l.ring, latency{inFlight, ns})
		return
	}
	l.ring[l.next] = latency{inFlight, ns}
	l.next = (l.next + 1) % LatencyMemory
}

// median is that of the requests which began with about as many in flight as one
// more would make: as near as it takes to have enough, in proportion to that number.
// Without the proportion a server with more in flight than ever before would answer
// with the latency of better days, and get still more. 0: there are none at all.
func (l *latencies) median(inFlight int32) float64 {
	var near [LatencyMemory]float64
	for distance := int32(0); ; {
		n, beyond := 0, int32(math.MaxInt32)
		for _, x := range l.ring {
			d := max(x.inFlight-inFlight-1, inFlight+1-x.inFlight)
			if d <= distance {
				near[n] = x.ns * float64(inFlight+1) / float64(max(1, x.inFlight))
				n++
			} else {
				beyond = min(beyond, d)
			}
		}
		if n >= LatencyFewest || beyond == math.MaxInt32 {
			return middle(near[:n])
		}
		distance = beyond
	}
}

func middle(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return x[len(x)/2]
}
