package weights

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Leveller keeps the predicted loads of cores level by where new flows go, as
// EdgeBalance's PID does. It learns how long flows live from the ages of the load, since
// no gains suit all lives: short flows are gone before a weight acts on them, long flows
// keep the consequence of a wrong weight. Every tick, for a horizon H,
//
//	rest[core] = Σ over ages of load[core][age] · survival[age]        at H, of today's flows
//	new        = load at H of the flows until then                     that of flows younger than H
//	weight[core] ∝ max(0, level − rest[core]) / (cost[core] · new)     Σ of these = 1
//
// So new flows fill up the cores to a common level. Load that will be gone at H
// moves no weight, so the noise of short flows does not; an elephant's load stays in
// rest, so its core gets less. A difference that lasts for all that, as quotients of noisy loads are off
// on average, is summed up in rest. docs/design/edge.md has the measurements.
type Leveller struct {
	cores   []levelled
	lives   lives
	noise   mean // of a core's load, from tick to tick
	weights []float64
	members []int
	last    time.Duration
	begun   bool
}

// levelled is a core.
type levelled struct {
	member bool
	cost   float64 // of a flow, beside the average core's
	seen   ByAge   // by its last sample
	load   ByAge   // the same at the usual pace
	before float64 // its whole load at the last tick, at the usual pace
	rest   float64
	excess float64 // over the average load, that lasts
}

// NewLeveller starts n cores, all members, with weight 1 and load 0.
func NewLeveller(n int) *Leveller {
	l := &Leveller{cores: make([]levelled, n), weights: make([]float64, n)}
	for i := range n {
		l.cores[i].cost = 1
		l.Join(i)
	}
	return l
}

// Observe takes the load of a core by age, and its cost beside others'. They hold until
// the next sample of it.
func (l *Leveller) Observe(_ time.Duration, s Sample) {
	c := &l.cores[s.Server]
	c.seen, c.cost = *s.ByAge, s.Cost
}

// Weights learns from the loads observed since the last call, some 30 ms ago, and shares
// out the flows from now on: 0 for cores that are no members, of mean 1 over the members.
// Weights are equal until a horizon is known. The first call sets only the origin of time.
func (l *Leveller) Weights(at time.Duration) []float64 {
	if l.begun && at <= l.last {
		return l.weights
	}
	if l.begun {
		elapsed := min(at-l.last, longest)
		l.even(elapsed)
		if l.listen(elapsed) {
			l.lives.elephant = at
		}
		l.lives.learn(at, elapsed, l.totals())
		l.sumUp(elapsed)
		l.fill()
	}
	l.last, l.begun = at, true
	return l.weights
}

// Join lets a core take new flows, from now on.
func (l *Leveller) Join(core int) {
	if !slices.Contains(l.members, core) {
		l.members = append(l.members, core)
		l.cores[core].member, l.cores[core].excess = true, 0
		l.fill()
	}
}

// Leave ends new flows for a core; those it has stay.
func (l *Leveller) Leave(core int) {
	if i := slices.Index(l.members, core); i >= 0 {
		l.members = slices.Delete(l.members, i, i+1)
		l.cores[core].member = false
		l.fill()
	}
}

// totals are the loads by age of all cores, each as the average core would have it, those
// without new flows included: flows live as long there.
func (l *Leveller) totals() (sum tickLoad) {
	for i := range l.cores {
		c := &l.cores[i]
		for class := range Ages {
			sum.seen[class] += c.seen[class] / c.cost
			sum.even[class] += c.load[class] / c.cost
		}
	}
	return sum
}

// loud is how many times the noise of a load is more than noise.
const loud = 3

// listen measures how far the load of a core is from that a tick ago, on average. A
// sudden change raises the measure a few times at most. It reports whether an elephant
// came: a core alone has suddenly more, by a part of the average core's load.
func (l *Leveller) listen(elapsed time.Duration) (elephant bool) {
	const least, alone = 0.1, 3
	sum, first, second, all := 0.0, 0.0, 0.0, 0.0
	for i := range l.cores {
		c := &l.cores[i]
		load := c.load.Sum(0, Ages)
		all += load
		if c.member {
			sum += math.Abs(load - c.before)
			second = max(second, min(first, load-c.before))
			first = max(first, load-c.before)
		}
		c.before = load
	}
	sudden := float64(loud*l.noise.value()) + float64(least*all/float64(len(l.cores)))
	l.noise.follow(min(sum/float64(max(1, len(l.members))), sudden), elapsed, time.Second)
	return first > sudden && first > alone*second
}

// sumUp adds up how far the load of each core is from the average core's, where that is no more than
// noise: in a second as much as it is, and not while the core's weight is at its end.
func (l *Leveller) sumUp(elapsed time.Duration) {
	const slowly = time.Second
	all, n := 0.0, float64(len(l.members))
	for _, i := range l.members {
		all += l.cores[i].seen.Sum(0, Ages)
	}
	most := float64(loud * l.noise.value())
	for _, i := range l.members {
		c := &l.cores[i]
		off := c.seen.Sum(0, Ages) - all/n
		if ends := off > 0 && l.weights[i] == 0 || off < 0 && l.weights[i] == n; math.Abs(off) < most && !ends {
			c.excess += float64(off * elapsed.Seconds() / slowly.Seconds())
		}
		c.excess = max(-most, min(c.excess, most))
	}
}

// fill shares out new flows. The horizon is long enough that their load outweighs the
// noise of the cores' loads, or weights would follow the noise.
func (l *Leveller) fill() {
	if l.lives.known == 0 || len(l.members) == 0 {
		l.equal()
		return
	}
	const least = 1e-9 // least: of no flows, the emptiest core gets the first
	n := float64(len(l.members))
	noise := max(float64(loud*l.noise.value()*n), least)
	h := l.lives.horizon(noise)
	survival := l.lives.survival(h)
	for _, i := range l.members {
		c := &l.cores[i]
		c.rest = l.lives.rest(&c.load, &survival, h, c.cost/n) + c.excess
	}
	l.share(max(l.lives.comes(h), noise))
}

// share pours a load of new flows into the members, the emptiest first.
func (l *Leveller) share(load float64) {
	slices.SortFunc(l.members, func(a, b int) int {
		return cmp.Or(cmp.Compare(l.cores[a].rest, l.cores[b].rest), a-b)
	})
	poured, width, level := load, 0.0, math.Inf(1)
	for _, i := range l.members {
		if c := &l.cores[i]; c.rest < level {
			poured += c.rest / c.cost
			width += 1 / c.cost
			level = poured / width
		}
	}
	clear(l.weights)
	for _, i := range l.members {
		c := &l.cores[i]
		l.weights[i] = float64(len(l.members)) * max(0, level-c.rest) / c.cost / load
	}
}

func (l *Leveller) equal() {
	clear(l.weights)
	for _, i := range l.members {
		l.weights[i] = 1
	}
}
