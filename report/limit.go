package report

import "time"

const (
	mostAnswers = 4000 // a second
	atOnce      = 400
)

// Limit bounds the answers of an agent, over all that ask: each costs it a look at its tables. The zero
// value has room.
type Limit struct {
	since time.Duration // begun
	spent float64
}

// Take reports whether there is room for another answer.
func (l *Limit) Take(now time.Duration) bool {
	l.spent = max(0, l.spent-mostAnswers*max(0, now-l.since).Seconds())
	l.since = now
	if l.spent+1 > atOnce {
		return false
	}
	l.spent++
	return true
}
