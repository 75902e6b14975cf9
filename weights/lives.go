package weights

import (
	"math"
	"time"
)

// Horizons are AgeUnit · 2^h long: from 67 ms, the shortest that ticks of 30 ms can
// steer by, to 4.3 s.
const (
	shortestHorizon = 2
	longestHorizon  = 8
)

func horizon(h int) time.Duration { return AgeUnit << h }

const tick = 30 * time.Millisecond // between two calls

// lives learns how much of a load survives a horizon H, from the sums over all cores,
// which do not depend on how flows are spread:
//
//	these flows                were H ago              and are now, as far as they survive
//	young                      up to H old             H to 2H
//	old, an octave each        H to 2H                 2H to 3H
//	oldest (H the longest)     from 2H on              from 3H on
//
// Each is a whole number of classes, so the ratio of the two is the survival of exactly
// these flows, by load.
type lives struct {
	past     past
	usual    [Ages]mean               // of all cores, over a while
	slow     [longestHorizon + 1]mean // load of flows younger than the horizon
	fast     [longestHorizon + 1]mean
	young    [longestHorizon + 1]cohort
	old      [longestHorizon + 1]cohort
	oldest   cohort
	elephant time.Duration // when the last elephant came
	unseen   float64       // so little load that it was never seen to end
	begun    bool          // flows have come
	known    int           // the longest horizon with a past; 0: none
}

// cohort is the load of such flows H ago, and now of those that survive, both smoothed.
type cohort struct{ was, is mean }

func (c *cohort) observe(was, is float64, elapsed, memory time.Duration) {
	c.was.follow(was, elapsed, memory)
	c.is.follow(is, elapsed, memory)
}

// survival of the cohort. Flows unseen yet may stay, so their load counts: 1. Flows may
// also send more as they get older, but not without end.
func (c *cohort) survival(unseen float64) float64 {
	const growth = 2
	return min((c.is.value()+unseen)/(c.was.value()+unseen), growth)
}

// mean forgets exponentially. It begins with the first measurement, not with 0.
type mean struct{ sum, weight float64 }

// follow takes a measurement, elapsed after the last.
func (m *mean) follow(measured float64, elapsed, memory time.Duration) {
	part := float64(elapsed) / float64(elapsed+memory)
	m.sum += float64(part * (measured - m.sum))
	m.weight += float64(part * (1 - m.weight))
}

func (m *mean) value() float64 {
	if m.weight == 0 {
		return 0
	}
	return m.sum / m.weight
}

// tickLoad is the load of all cores by age in a tick: as it was seen, of which means are right
// over a pause and its burst, and at the usual pace.
type tickLoad struct{ seen, even ByAge }

// learn takes the load of all cores, elapsed after the last. An idle time before the first
// flow is not among the means.
func (l *lives) learn(at, elapsed time.Duration, total tickLoad) {
	const little, least = 3e-4, 1e-9
	now := &total.seen
	l.past.add(at, *now)
	if l.begun = l.begun || *now != (ByAge{}); !l.begun {
		return
	}
	l.unseen = max(least, little*total.even.Sum(0, Ages))
	for class, load := range now {
		l.usual[class].follow(load, elapsed, max(time.Second, 4*horizon(class/2)))
	}
	for h := shortestHorizon; h <= longestHorizon; h++ {
		then, known := l.past.load(at - horizon(h))
		if known {
			l.known = max(l.known, h)
		}
		if l.crossed(at, h) {
			continue
		}
		memory := max(500*time.Millisecond, 2*horizon(h))
		l.slow[h].follow(now.Sum(0, 2*h), elapsed, memory)
		l.fast[h].follow(total.even.Sum(0, 2*h), elapsed, tick)
		if !known {
			continue
		}
		l.young[h].observe(then.Sum(0, 2*h), now.Sum(2*h, 2*h+2), elapsed, memory)
		l.old[h].observe(then.Sum(2*h, 2*h+2), now[2*h+2], elapsed, memory)
		if h == longestHorizon {
			l.oldest.observe(then.Sum(2*h+2, Ages), now[Ages-1], elapsed, memory)
		}
	}
}

// crossed reports whether an elephant passes through the ages of a horizon: it is no
// measure of other flows. Half a second at most, or nothing would be learned between many;
// nor before something is known of other flows.
func (l *lives) crossed(at time.Duration, h int) bool {
	const little = 0.5
	return l.elephant > 0 && l.slow[h].weight > little && at < l.elephant+min(3*horizon(h), 500*time.Millisecond)+2*tick
}

// comes is the load at the horizon of the flows that begin until then: that of flows
// younger than the horizon. An elephant among them is soon no longer young, so the lesser
// of a short while and a long while.
func (l *lives) comes(h int) float64 { return min(l.fast[h].value(), l.slow[h].value()) }

// horizon is the shortest known horizon until which at least this much comes, or the longest.
func (l *lives) horizon(load float64) int {
	h := shortestHorizon
	for h < l.known && l.comes(h) < load {
		h++
	}
	return h
}

// survival until the horizon, by age.
func (l *lives) survival(h int) (part ByAge) {
	for class := range part {
		switch octave := class / 2; {
		case octave < h:
			part[class] = l.young[h].survival(l.unseen)
		case octave <= longestHorizon:
			part[class] = within(&l.old[octave], octave-h, l.unseen)
		default:
			part[class] = within(&l.oldest, longestHorizon-h, l.unseen)
		}
	}
	return part
}

// within is the survival in 2⁻ⁿ of a cohort's horizon. Its flows end evenly over it: a
// straight line, which lies above every curve of falling survival.
func within(c *cohort, n int, unseen float64) float64 {
	return 1 - math.Ldexp(1-c.survival(unseen), -n)
}

// rest is the load of a core that is left at the horizon; each is the core's part of the
// usual loads. An elephant is heavier than the flows that the survival was learned from:
// its load beyond twice the usual load of that age has not been seen to end, so it stays.
func (l *lives) rest(load, survival *ByAge, h int, each float64) (sum float64) {
	for class, now := range load {
		learned := now
		if class >= 2*h {
			learned = min(now, 2*each*l.usual[class].value())
		}
		sum += float64(learned*survival[class]) + (now - learned)
	}
	return sum
}

// past is a ring of loads, enough for the longest horizon by ticks of 30 ms.
type past struct {
	moments [160]moment
	count   int
}

type moment struct {
	at   time.Duration
	load ByAge
}

func (p *past) add(at time.Duration, load ByAge) {
	p.moments[p.count%len(p.moments)] = moment{at, load}
	p.count++
}

// load is that of an instant, between two moments in proportion.
func (p *past) load(at time.Duration) (load ByAge, known bool) {
	for i := p.count - 1; i > 0 && i > p.count-len(p.moments); i-- {
		after, before := &p.moments[i%len(p.moments)], &p.moments[(i-1)%len(p.moments)]
		if before.at > at {
			continue
		}
		part := float64(at-before.at) / float64(after.at-before.at)
		for class := range load {
			load[class] = before.load[class] + float64(part*(after.load[class]-before.load[class]))
		}
		return load, true
	}
	return load, false
}
