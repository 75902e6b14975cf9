// Package sim runs a farm in virtual time: Poisson or other arrivals, an edge
// router, load balancers that each see their own flows, servers that share or
// queue, and every policy of docs/design/simulator.md, so that policies are compared on the
// very same requests (SRLB §V, 6LB §VI, HLB §V-B).
//
// A request's way, each arrow a hop of random length:
//
//	client → LB → server: SYN        the LB chooses, or offers to a list
//	         server → server         an offer that is passed on, or returned
//	client ← server: SYN-ACK         by the LB if the policy hunts
//	client → LB → server: data       now it runs, or waits for its turn
//	client ← server: reply           the flow completion time ends here
//	client → LB: FIN                 or the server's signal, if the policy hunts
//
// Where the code is: farm.go and workload.go describe a run, engine.go is the
// loop, way.go and queue.go the way above, station.go one queue with its cores,
// hops.go the two heaps of coming events, antagonist.go and flood.go the
// farm's other work and forged SYNs, least.go the index that policies find the best
// server with, part.go all that a policy may do. A policy is a file: policies/ has
// them, learned/ those that count flows or learn; proof/ holds engine and policies to
// theory and to an engine as obvious as can be. Everything is a function of the seed,
// to the bit.
//
// An event is one of these: a client sends, a SYN reaches an LB or a server, data
// reaches a server, or an LB that tells embryonic flows apart, a core or a disk finishes a
// stage, a signal or a FIN reaches an LB that has to know, a probe reaches a server or an
// LB, a forged SYN reaches an LB or is forgotten, an antagonist changes its share, a timer
// fires. The data packets that learned samples
// are drawn in batches and are no events.
//
// The one thing not proved equal on every machine is the tail of math/rand's
// exponential and normal draws, which math.Log and math.Exp decide; whole
// nanoseconds hide their last bit.
package sim
