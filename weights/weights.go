// Package weights decides how large a share of the new flows each server gets.
// A Weigher takes samples singly and returns weights: configured weights
// (Static), weights learned from how long flows last (Filter, HLB §IV-B), weights by
// the servers' own reports (Polled), or weights that level predicted loads (PID, EdgeBalance §3; Leveller, by how long flows live).
// The package has no clock and no randomness of its own, and its arithmetic gives the
// same bits on every machine, so that the daemon and the simulators run the same object.
package weights

import "time"

// Weigher turns samples of a fixed list of servers into their weights. One
// goroutine owns it.
type Weigher interface {
	// Observe takes a sample made at the monotonic time at.
	Observe(at time.Duration, s Sample)

	// Weights returns the weight of each server from at on, by all samples
	// observed so far: none below 0, 0 for a server without new flows. Only their
	// ratios count. The slice stays valid until the next call. A call at the
	// instant of the last sample, or before it, changes nothing.
	Weights(at time.Duration) []float64
}

// Sample is a measurement of a server.
type Sample struct {
	Server int     // its position in the weights
	Value  float64 // Filter: a flow's duration, in any unit; PID: the load, 1 a whole core
	ByAge  *ByAge  // Leveller: the load by the age of its flows
	Report *Report // Polled: the server's own
	Cost   float64 // Leveller: the core's cost of a flow; only ratios count

	// Random is a uniformly random word for a weigher that keeps only some
	// samples (Filter).
	Random uint64
}
