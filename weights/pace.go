package weights

import (
	"slices"
	"time"
)

// A generator, a link or a host that pauses stops the packets of all cores, and the late packets come
// all at once. That is no elephant, and no core has another part of the packets than before.

// pace is how fast packets came in a tick beside the ticks before, as far as all busy cores had so
// many more or fewer. It takes the load of all cores, and that of each, beside the usual loads.
func pace(all float64, cores []float64) float64 {
	if len(cores) == 0 {
		return 1
	}
	slices.Sort(cores)
	if all < 1 {
		return min(1, max(all, cores[len(cores)/2]))
	}
	return max(1, min(all, cores[(len(cores)-1)/2]))
}

// even takes the loads of a tick at the usual pace, which follows that of the ticks slowly, as a
// change that lasts becomes usual. So over a while the mean is that of the loads.
func (l *Leveller) even(elapsed time.Duration) {
	const (
		busy   = 0.1 // of the average core
		idle   = 1e-6
		few    = 0.2 // of the usual packets tell nothing
		memory = 500 * time.Millisecond
	)
	all, usual := 0.0, 0.0
	for i := range l.cores {
		all += l.cores[i].seen.Sum(0, Ages)
		usual += l.cores[i].before
	}
	var cores []float64
	for i := range l.cores {
		if c := &l.cores[i]; c.before > max(idle, busy*usual/float64(len(l.cores))) {
			cores = append(cores, c.seen.Sum(0, Ages)/c.before)
		}
	}
	p := pace(all/usual, cores)
	follows := 1 + float64(float64(elapsed)/float64(elapsed+memory)*(p-1))
	for i := range l.cores {
		c := &l.cores[i]
		if p < few {
			c.load.scale(follows)
		} else {
			c.load = c.seen
			c.load.scale(follows / p)
		}
	}
}
