package edgesim

import (
	"math"
	"time"
)

// Arrival is an elephant's at cores that mice keep at 45 % each, with a given mean life
// and Pareto's shape of it (0: all alike), a hundred a core at a time. At the instant
// returned, when the mice are in equilibrium, the elephant asks for half a core more.
// Nothing here costs less on a busy core, so loads are as predicted but for the jitter.
func Arrival(cores int, life time.Duration, tail float64) (Farm, Traffic, time.Duration) {
	const (
		load    = 0.45
		atATime = 100
	)
	cost := 10 * time.Microsecond
	if life > 5*time.Second { // a long run has fewer packets, of the same load
		cost *= 5
	}
	f := Farm{Servers: nodes(cores, cost), Ring: ring, Jitter: jitter}
	gap := time.Duration(float64(cost) * atATime / load)
	comes := 2*time.Second + 3*life
	mice := Class{PerSecond: float64(atATime*cores) / life.Seconds(), Packets: max(1, life.Seconds()/gap.Seconds()), Gap: gap, Tail: tail}
	return f, Traffic{For: comes + 4*life + 6*time.Second, WarmUp: comes,
		Classes: []Class{mice, {Elephants: 1, Gap: 2 * cost, From: comes}}}, comes
}

// Settling is how a farm fared after an event.
type Settling struct {
	Level  float64 // s until all cores are near their average, smoothed over some ticks; +Inf: never
	Apart  float64 // from then on: the busiest less the idlest core, mean over the ticks
	Unrest float64 // from then on: standard deviation of the first core's weight
}

// Settle measures it from an instant on. Near is within so much of a core's time.
func Settle(samples []Sample, from time.Duration, near float64) Settling {
	s := Settling{Level: math.Inf(1)}
	off := make([]float64, len(samples[0].Measured))
	n, sum, square := 0.0, 0.0, 0.0
	for _, sample := range samples {
		furthest, spread := deviate(off, sample.Measured)
		after := (sample.At - from).Seconds()
		if after < 4*Period.Seconds() { // the event may not show yet
			continue
		}
		if math.IsInf(s.Level, 1) && furthest <= near {
			s.Level = after
		}
		if after < s.Level+10*Period.Seconds() {
			continue
		}
		n++
		s.Apart += spread
		sum += sample.Weights[0]
		square += sample.Weights[0] * sample.Weights[0]
	}
	s.Apart /= max(1, n)
	s.Unrest = math.Sqrt(max(0, square-sum*sum/max(1, n)) / max(1, n))
	return s
}

// deviate smooths the distances from the average, and returns the greatest, and the
// loads' spread.
func deviate(off, loads []float64) (furthest, spread float64) {
	const smooth = 0.4
	average, least, most := 0.0, math.Inf(1), math.Inf(-1)
	for _, load := range loads {
		average += load / float64(len(loads))
		least, most = min(least, load), max(most, load)
	}
	for i, load := range loads {
		off[i] += smooth * (load - average - off[i])
		furthest = max(furthest, math.Abs(off[i]))
	}
	return furthest, most - least
}
