// Package edgesim plays EdgeBalance's experiments (§4) packet by packet in virtual
// time: flows that stay where their first packet went, packets that cost their
// service's time on a core, bounded rings before the cores, and every 30 ms a
// tick of a balancer with a weigher of package weights, the objects of a daemon.
//
//	flow begins → LB: the next core, by the weights
//	every packet → counted by the LB → the core's ring, or dropped if it is full
//	30 ms        → loads from the counters (model) or from reports (monitor)
//	             → PID or Leveller → weights of the next flows
//
// farm.go and traffic.go describe a run, source.go makes the packets, core.go is
// one ring with its core, turn.go the weighted round robin, balancer.go an LB,
// engine.go the loop.
// The network between LB and servers takes no time: it would be the same for
// every policy. A run is a function of its seed.
package edgesim
