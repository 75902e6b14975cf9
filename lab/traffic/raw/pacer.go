package raw

import "time"

// pacer spreads frames at a rate. It has no clock.
type pacer struct {
	rate  float64 // a second; 0: no pace
	given int
}

// Batch is the most that leaves in one system call.
const Batch = 64

// due is how many may leave at the instant now since the beginning: never more
// than a millisecond's worth, so that a late sender catches up by degrees and not
// in a burst.
func (p *pacer) due(now time.Duration) int {
	if p.rate == 0 {
		return Batch
	}
	owed := 1 + int(now.Seconds()*p.rate) - p.given
	return min(owed, max(1, int(p.rate/1000)))
}

// rest is how long to sleep after so many of the due have left. Twice a
// millisecond lets it catch up; a device with a full queue needs less
// to empty it.
func (p *pacer) rest(due, left int) time.Duration {
	switch {
	case left < due:
		return 20 * time.Microsecond
	case p.rate == 0:
		return 0
	default:
		return time.Millisecond / 2
	}
}
