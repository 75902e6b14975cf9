package control

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"proffer/dataplane"
	"proffer/policy"
	"proffer/topo"
	"proffer/weights"
)

// Learner weighs the servers of a service that chooses among all of them. It learns from the counts of
// a data plane how long their flows last (HLB §IV-B), and where the mode has it so, from that how fast
// they are. It owns no clock and no goroutine.
type Learner struct {
	svc    *topo.Service
	filter *weights.Filter  // of the flows' durations
	last   []dataplane.Seat // at the last reading
	read   bool             // there was one
	news   bool             // samples came since the last step
	flood  weights.Flood
	spread dataplane.Spread
	speeds []float64
	next   time.Duration // of the next step
	polls  *Poller       // of the servers' loads; nil: the mode needs none
	at     time.Duration // of the last reading
}

// NewLearner makes the learner of a service. Servers of the learner before it, which may
// be nil, keep their samples, states and weights.
func NewLearner(svc *topo.Service, before *Learner) *Learner {
	n := len(svc.Servers)
	l := &Learner{
		svc: svc, filter: weights.NewFilter(n, settings(svc)), last: make([]dataplane.Seat, n),
		speeds: make([]float64, n), spread: dataplane.Spread{Counting: svc.Dispatch.Row().Counting},
	}
	if svc.Dispatch.Polls() {
		l.polls = NewPoller(svc, before.poller())
	}
	if before != nil {
		l.inherit(before)
	}
	if !svc.Dispatch.Learns() {
		l.speeds = ofOne(svc.Weights())
	} else {
		copy(l.speeds, l.filter.Known())
	}
	return l
}

// inherit takes over all that is known of servers that stay.
func (l *Learner) inherit(before *Learner) {
	l.flood, l.news, l.spread.Silent = before.flood, before.news, before.spread.Silent
	l.spread.Counting = l.svc.Dispatch.Row().CountingIn(l.flood.Is())
	known := map[netip.Addr]int{}
	for j, s := range before.svc.Servers {
		known[s.At()] = j
	}
	for i, s := range l.svc.Servers {
		if j, is := known[s.At()]; is {
			l.filter.Inherit(i, before.filter, j)
			l.last[i] = before.last[j]
			l.read = before.read
		}
	}
}

// Polls is the poller of the servers' loads; nil: the mode needs none.
func (l *Learner) Polls() *Poller { return l.polls }

// Service is that which it learns of.
func (l *Learner) Service() *topo.Service { return l.svc }

// poller is Polls of a learner that may be nil.
func (l *Learner) poller() *Poller {
	if l == nil {
		return nil
	}
	return l.polls
}

// ofOne scales weights to a sum of 1.
func ofOne(w []float64) []float64 {
	sum := 0.0
	for _, x := range w {
		sum += x
	}
	for i := range w {
		w[i] /= cmp.Or(sum, 1)
	}
	return w
}

// agesKept is the reservoir of the authors' simulator, which samples ages.
const agesKept = 32

func settings(svc *topo.Service) weights.FilterSettings {
	s, mode := weights.QuickFilter(), svc.Dispatch.Row()
	if mode.Published {
		s = weights.PublishedFilter()
	}
	if mode.Ages {
		s.Reservoir = agesKept
	}
	return s
}

// shortest stands for a duration that the data plane's unit, 4.2 ms, does not show.
const shortest = time.Millisecond

// Observe takes a reading of the servers' seats; random chooses the samples that stay.
func (l *Learner) Observe(at time.Duration, seats []dataplane.Seat, random func() uint64) {
	if !l.read && l.svc.Dispatch.Learns() {
		l.recall(seats)
	}
	for i := range seats {
		for _, d := range seats[i].Durations {
			l.filter.Observe(at, weights.Sample{Server: i, Value: max(d, shortest).Seconds(), Random: random()})
			l.news = true
		}
		if l.read {
			l.filter.Began(i, seats[i].Begun-l.last[i].Begun)
			l.flood.Count(float64(seats[i].Begun-l.last[i].Begun), float64(seats[i].Lived-l.last[i].Lived))
		}
	}
	l.last, l.read, l.at = seats, true, at
}

// recall begins with the weights that an earlier daemon left, if it left any.
func (l *Learner) recall(seats []dataplane.Seat) {
	inverses := make([]float64, len(seats))
	for i, s := range seats {
		inverses[i] = float64(s.Inverse)
	}
	l.filter.Recall(inverses)
	copy(l.speeds, l.filter.Known())
}

// Due reports whether it is time for a step.
func (l *Learner) Due(at time.Duration) bool { return at >= l.next }

// Step takes a step of learning and returns how new flows are spread from now on. Without a sample
// since the last step it learns nothing, so that an idle farm's weights stay.
func (l *Learner) Step(at time.Duration) dataplane.Spread {
	l.next = at + l.every()
	if l.news && l.svc.Dispatch.Learns() {
		copy(l.speeds, l.filter.Weights(at))
		l.news = false
	}
	if l.polls != nil {
		if w := l.polls.Weights(at); w != nil {
			l.speeds = ofOne(slices.Clone(w))
		}
	}
	chosen := make([]float64, len(l.speeds))
	for i, w := range l.speeds {
		if l.takes(i) {
			chosen[i] = w
		}
	}
	l.spread.Inverses = policy.Inverses(chosen)
	l.spread.Shares = l.svc.Dispatch.Row().Choice.Shares(chosen)
	l.spread.Counting = l.svc.Dispatch.Row().CountingIn(l.flood.Step())
	l.spread.Silent = l.silent()
	l.spread.Owed = nil
	if l.spread.Counting == topo.AllCounting && l.svc.Dispatch.Learns() {
		l.spread.Owed = l.filter.Owed(l.takes)
	}
	return l.spread
}

// stepEvery is the time between two steps of a service that learns no speeds: a server's next hop, and
// a flood, are noticed so soon.
const stepEvery = 500 * time.Millisecond

func (l *Learner) every() time.Duration {
	if l.svc.Dispatch.Learns() {
		return l.svc.LearnEvery
	}
	if l.polls != nil && l.polls.weigher != nil {
		return 0 // with each reading, as reports come at any time
	}
	return stepEvery
}

// takes reports whether a server gets new flows.
func (l *Learner) takes(server int) bool {
	return l.svc.Servers[server].Weight > 0 && l.last[server].Ready
}

// Conversion is the part of the latest flows that came to life; false: there are too few.
func (l *Learner) Conversion() (part float64, known bool) { return l.flood.Conversion() }

// silent is how long a flow without packets counts: much longer than flows last, also at the
// slowest server.
func (l *Learner) silent() time.Duration {
	sum, slowest, n := 0.0, 0.0, 0
	for i := range l.last {
		if s := l.filter.Learned(i); s.Samples > 0 {
			sum, slowest, n = sum+s.Mean, max(slowest, s.Mean), n+1
		}
	}
	if n == 0 {
		return 0
	}
	longest := max(10, 16*sum/float64(n), 8*slowest)
	return time.Duration(min(longest, topo.MaxAge.Seconds()) * float64(time.Second))
}

// LearnedServer is all that is known of a server.
type LearnedServer struct {
	dataplane.Seat
	weights.Learned
	Weight float64 // that of all servers sum to 1
	Why    string
}

// Learned has the servers, in the order of the service's.
func (l *Learner) Learned() []LearnedServer {
	all := make([]LearnedServer, len(l.last))
	for i := range all {
		all[i] = LearnedServer{Seat: l.last[i], Learned: l.filter.Learned(i), Weight: l.speeds[i]}
		all[i].Why = l.why(i, &all[i])
		if !l.takes(i) {
			all[i].Weight = 0
		}
	}
	return all
}

// why explains a server's weight.
func (l *Learner) why(i int, s *LearnedServer) string {
	switch {
	case l.svc.Servers[i].Weight == 0:
		return "draining: no new flows"
	case s.Waits:
		return "no seat until flows of servers that left have ended: no new flows"
	case !s.Ready:
		return "no next hop: no new flows"
	case l.polls != nil:
		return l.polls.why(l.at, i)
	case !l.svc.Dispatch.Learns():
		return l.svc.Dispatch.Row().Weights.String()
	case s.Samples == 0:
		return "no samples: average assumed"
	case s.Lived == 0 && s.Begun > 0:
		return "no flow came to life"
	}
	return fmt.Sprintf("flows last %.2f of the average", s.Learned.Kalman.Mean)
}

// Spread is how new flows are spread since the last step.
func (l *Learner) Spread() dataplane.Spread { return l.spread }

// Gain is the Kalman gain of the last step, Noise the variance of a measurement.
func (l *Learner) Gain() float64  { return l.filter.Gain() }
func (l *Learner) Noise() float64 { return l.filter.Noise() }
