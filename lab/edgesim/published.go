package edgesim

import (
	"math"
	"time"
)

// The three experiments of EdgeBalance §4. Inputs that the paper leaves open are chosen
// here, and named in docs/design/edge.md.

const (
	chain  = 700 * time.Nanosecond // cost of a packet, Figures 4 and 5
	ring   = 512
	warm   = 0.04
	jitter = 0.1
)

// ReportNoise makes the monitor's servers as unequal as the paper's, 7 % apart.
const ReportNoise = 0.1

func nodes(n int, cost time.Duration) []Server {
	servers := make([]Server, n)
	for i := range servers {
		servers[i] = Server{Cores: 1, Cost: []time.Duration{cost}}
	}
	return servers
}

// PredictionRate is the packets a second of Figure 3.
const PredictionRate = 500_000

// Prediction is Figure 3: short flows at a constant rate to one core with a chain
// of functions of the given cost a packet.
func Prediction(cost time.Duration) (Farm, Traffic) {
	f := Farm{Servers: nodes(1, cost), Ring: ring, Warm: warm, Jitter: jitter}
	return f, Traffic{For: 2 * time.Second, WarmUp: Period,
		Classes: []Class{{PerSecond: PredictionRate / 10, Packets: 10, Gap: time.Millisecond}}}
}

// heavy is Figure 4's load of its two servers together, in cores.
const heavy = 1.9

// HeterogeneousRate is the packets a second of Figure 4.
const HeterogeneousRate = heavy * float64(time.Second) / float64(chain)

// Heterogeneous is Figure 4: one elephant with the given share of the packets,
// from 0 to less than 1, and mice of 10 packets at intervals of 1 ms, to two
// servers.
func Heterogeneous(share float64) (Farm, Traffic) {
	f := Farm{Servers: nodes(2, chain), Ring: ring, Warm: warm, Jitter: jitter}
	return f, HeterogeneousTraffic(share, chain)
}

// HeterogeneousTraffic is Figure 4's, of packets of another cost.
func HeterogeneousTraffic(share float64, cost time.Duration) Traffic {
	rate := heavy * float64(time.Second) / float64(cost)
	t := Traffic{For: 4 * time.Second, WarmUp: time.Second}
	if share > 0 {
		gap := math.Round(float64(time.Second) / (rate * share))
		t.Classes = []Class{{Elephants: 1, Gap: time.Duration(gap)}}
	}
	mice := rate * (1 - share) / 10
	t.Classes = append(t.Classes, Class{PerSecond: mice, Packets: 10, Gap: time.Millisecond})
	return t
}

// Of Figure 5: when the traffic doubles, how long a flow lasts on average, Pareto's shape of that, and the
// load of the only server until the traffic doubles.
//
// The paper names no life of flows, but two times until its servers are level, close to a second and about
// 35 s, and these determine mean and shape. Where all new flows go to the new server, loads are level when
// Rest is 2/3, at a third of the mean, and are seen to be so up to LevelOver later. Where every other flow
// does, they are level when the old load is down to Near:
//
//	mean/3 + LevelOver = .97 s
//	Before·(1/a)·(x_m/t)^(a−1) = Near at t = 34.6 s, with x_m = mean·(a − 1)/a
const (
	Doubling = 9 * time.Second
	Lifetime = 2200 * time.Millisecond
	Tail     = 1.69
	Before   = 0.84
)

// Two loads are level at the distance Near, in means over LevelOver, if the mean of their distances over Steady
// from then on is Near, too: loads that come near by chance go apart again. A flow is .025, so that not every
// distance is to be Near.
const (
	Near      = 0.04
	LevelOver = 8 * Period
	Steady    = time.Second
)

// Dynamic is Figure 5: 15 flows a second to one server, in equilibrium from the
// beginning, twice as many from Doubling on, and a spare server that joins above
// 95 %. tail is Pareto's shape of the flows' lifetimes, 0 for flows alike. Packets are ten times dearer and
// ten times rarer than the paper's, which changes no load.
func Dynamic(tail float64) (Farm, Traffic) {
	const cost = 10 * chain
	f := Farm{Servers: nodes(2, cost), Ring: ring, Warm: warm, Jitter: jitter, Overload: 0.95}
	f.Servers[1].Spare = true
	return f, DynamicTraffic(tail, cost)
}

// DynamicTraffic is Figure 5's, of packets of another cost.
func DynamicTraffic(tail float64, cost time.Duration) Traffic {
	packets := Before / 15 / cost.Seconds()
	c := Class{PerSecond: 15, Even: true, Packets: packets, Tail: tail, Gap: time.Duration(float64(Lifetime) / packets)}
	more := c
	more.From = Doubling
	c.Filled = true
	return Traffic{For: 60 * time.Second, Classes: []Class{c, more}}
}
