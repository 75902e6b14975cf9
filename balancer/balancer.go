// Package balancer decides for an edge LB (EdgeBalance §3): counters in, weights of cores
// out, and the wish for another replica. It owns no clock and no goroutine; lab/edgesim runs
// the object in virtual time.
//
//	packets by core, service and age → predicted loads
//	loads of this LB and of the others → weigher → weights of new flows
//	average load above Overload → Enlarge
package balancer

import (
	"math"
	"slices"
	"time"

	"proffer/weights"
)

// Weigher is a weigher with cores that come and go.
type Weigher interface {
	weights.Weigher
	Join(core int)
	Leave(core int)
}

// Settings of a balancer. A core of a node is a single index throughout.
type Settings struct {
	Costs   weights.Costs
	Stated  []int   // services of which the costs are not learned from measured loads
	Weigher Weigher // of as many cores, all members

	// Monitor weighs by measured loads in place of predicted loads. Without it the costs are learned
	// from them.
	Monitor bool

	// Overload is the average load above which another replica is wanted, if it lasts. 0: never.
	Overload float64

	// Patience is how long a wished replica may take before it is wished again.
	Patience time.Duration
}

// Reading is the state of the data plane at a tick.
type Reading struct {
	Packets  [][]weights.Packets // sent so far, by core and service
	Others   []weights.ByAge     // the loads that other LBs cause, by core; nil: none known
	Measured []float64           // loads until the last tick as measured, NaN where not; nil: none is
}

// Decision is the outcome of a tick; its slices are valid until the next.
type Decision struct {
	Loads   []float64 // of each core, predicted, by all known LBs
	Weights []float64 // of each core for new flows, 0 for cores that are no members
	Enlarge bool      // another replica is wanted
}

// Balancer decides for the cores of an LB. One goroutine owns it.
type Balancer struct {
	settings Settings
	meter    *weights.Meter
	member   []bool
	own      []weights.ByAge
	loads    []float64
	full     int // ticks of overload, one after the other
	wished   time.Duration
	wishes   bool
}

// New starts with all cores as members. It fails on costs that no packet has.
func New(s Settings) (*Balancer, error) {
	if err := s.Costs.Check(); err != nil {
		return nil, err
	}
	n := len(s.Costs)
	b := &Balancer{settings: s, meter: weights.NewMeter(s.Costs), member: slices.Repeat([]bool{true}, n),
		own: make([]weights.ByAge, n), loads: make([]float64, n)}
	for _, service := range s.Stated {
		b.meter.Fix(service)
	}
	return b, nil
}

// SetCost gives a service another cost at a core.
func (b *Balancer) SetCost(core, service int, c weights.Curve) { b.meter.SetCost(core, service, c) }

// Cost is the cost of a service at a core as it is by now.
func (b *Balancer) Cost(core, service int) weights.Curve { return b.meter.Cost(core, service) }

// CostNow is that cost at the core's rate of packets, in ns.
func (b *Balancer) CostNow(core, service int) float64 { return b.meter.CostNow(core, service) }

// Join lets a core take new flows. A replica that joins is that wished.
func (b *Balancer) Join(core int) {
	if !b.member[core] {
		b.member[core], b.wishes = true, false
	}
	b.settings.Weigher.Join(core)
}

// Leave ends new flows for a core, as for a drain; those it has stay.
func (b *Balancer) Leave(core int) {
	b.member[core] = false
	b.settings.Weigher.Leave(core)
}

// Own is the loads that this LB causes, by core and age, at the last tick: other LBs add
// them to theirs.
func (b *Balancer) Own() []weights.ByAge { return b.own }

// Tick decides at a monotonic time, 30 ms after the last.
func (b *Balancer) Tick(at time.Duration, r Reading) Decision {
	b.learn(r.Measured)
	b.meter.Read(at, r.Packets)
	for core := range b.loads {
		s := b.meter.Sample(core)
		b.own[core] = *s.ByAge
		if r.Others != nil {
			sum := *s.ByAge
			sum.Add(&r.Others[core])
			s.ByAge, s.Value = &sum, sum.Sum(0, weights.Ages)
		}
		b.loads[core] = s.Value
		if r.Measured != nil && !math.IsNaN(r.Measured[core]) && b.settings.Monitor {
			s.Value = r.Measured[core]
		}
		b.settings.Weigher.Observe(at, s)
	}
	return Decision{Loads: b.loads, Weights: b.settings.Weigher.Weights(at), Enlarge: b.overloaded(at)}
}

// learn has the costs follow the measured loads, which belong to the packets of the last tick.
func (b *Balancer) learn(measured []float64) {
	if b.settings.Monitor {
		return
	}
	for core, load := range measured {
		b.meter.Learn(core, load)
	}
}

// lasting is how many ticks an overload lasts until a replica is wanted: a pause of the traffic ends with
// a burst of one or two.
const lasting = 3

// overloaded reports a wish for another replica, once in Patience until one joins.
func (b *Balancer) overloaded(at time.Duration) bool {
	sum, n := 0.0, 0
	for core, load := range b.loads {
		if b.member[core] {
			sum += load
			n++
		}
	}
	if b.settings.Overload == 0 || n == 0 || sum/float64(n) <= b.settings.Overload {
		b.full = 0
		return false
	}
	if b.full++; b.full < lasting {
		return false
	}
	if b.wishes && at < b.wished+b.settings.Patience {
		return false
	}
	b.wished, b.wishes = at, true
	return true
}
