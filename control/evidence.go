package control

import (
	"math"
	"time"
)

// answers are sums of all that a data plane has counted of a server, or of the servers of a
// service: new connections that were offered, and those that were answered.
type answers struct{ offered, answered uint64 }

func (a *answers) add(more answers) {
	a.offered += more.offered
	a.answered += more.answered
}

// trail has the sums of the last readings, the latest last.
type trail []reading

type reading struct {
	at time.Duration
	answers
}

// add appends a reading, and forgets those that are older than the newest reading before since.
func (t trail) add(at time.Duration, sum answers, since time.Duration) trail {
	t = append(t, reading{at, sum})
	for len(t) > 1 && t[1].at <= since {
		t = t[1:]
	}
	return t
}

// before is the newest reading at a time or before it; none: zeros.
func (t trail) before(at time.Duration) answers {
	for i := len(t) - 1; i >= 0; i-- {
		if t[i].at <= at {
			return t[i].answers
		}
	}
	return answers{}
}

const (
	// enough evidence: once in a million by chance.
	enough = 13.8
	// surest is the largest share of answered connections that is reckoned with: one without an
	// answer is always possible.
	surest = 0.99
)

// evidence is how surely a server answers nothing: -ln of the chance that a server that answers as
// its peers do answers none of n connections. Of these some were repeated, or met an ICMP error:
// each counts twice at most. The peers answered k of m meanwhile.
func evidence(n, hints, m, k uint64) float64 {
	p := min(float64(k)/float64(m+1), surest)
	return -float64(n+min(n, hints)) * math.Log1p(-p)
}

// awaited are the connections that are reckoned with.
type awaited int

const (
	ripe    awaited = iota // those that would have been answered by now
	overdue                // those that most likely would have been
	all                    // the youngest, too, as if they were not answered either
)

// age is how old connections are that are reckoned with, at least.
func (p *peers) age(which awaited) time.Duration {
	return [...]time.Duration{ripe: p.patience, overdue: p.hunch, all: 0}[which]
}

// doubt is the evidence that a server answers nothing since its last answer: by the service that
// has least, of those with peers that answer.
func (s *observed) doubt(at time.Duration, which awaited) (least float64) {
	met := false
	for _, p := range s.pools {
		from, known := s.base.pools[p]
		if !known { // the service has the server since a moment
			s.base.pools[p] = p.sum
			continue
		}
		age := p.age(which)
		then := p.trail.before(at - max(age, p.hunch))
		n := less(s.trail.before(at-age).offered, s.base.own.offered)
		if which == overdue {
			from = p.trail[0].answers // a few suffice, so all that is known of its peers is reckoned with
		}
		k := less(then.answered, from.answered)
		if k == 0 {
			continue
		}
		if e := evidence(n, s.hints-s.base.hints, less(then.offered, from.offered+n), k); !met || e < least {
			least, met = e, true
		}
	}
	return least
}

// less is a - b, or 0.
func less(a, b uint64) uint64 {
	if a < b {
		return 0
	}
	return a - b
}
