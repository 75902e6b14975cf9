// Package dataplane has the parts that belong to no single data plane: whether a host
// can run one, how long eBPF programs run, the dump of pinned flow tables, and the
// values that data planes report. The data planes are in lb and agent; bench runs
// either many times. Only dataplane and proof import cilium/ebpf.
package dataplane

import (
	"errors"
	"net/netip"
	"time"

	"proffer/topo"
)

// ErrLinkGone ends a plane: its link was deleted, and a link of the same name is another link,
// which takes another attachment.
var ErrLinkGone = errors.New("the link is gone")

// Counter is a named reason and how often it was met.
type Counter struct {
	Name  string
	Value uint64
}

// Swept counts the flows that a sweep found.
type Swept struct {
	Kept, Removed uint64
	Recoloured    uint32 // entries of an LB that count by another colour
	Unmoved       uint32 // requests that an agent's recount has to count again
	Recounted     int    // loads with a count of requests that a recount has set right
}

// Seat is a server of a service that chooses among all of its servers.
type Seat struct {
	Established, Embryonic uint32          // its flows that count
	Begun, Lived           uint32          // flows so far, and those that came to life; they wrap
	Durations              []time.Duration // of flows, sampled since the last reading
	Inverse                uint32          // by which new flows are spread, also by an earlier daemon's Spread
	Ready                  bool            // its next hop is known
	Waits                  bool            // for a seat: flows of servers that left have not ended
}

// Spread is how the new flows of a service are spread over its servers, where it chooses among all.
type Spread struct {
	Counting topo.Counting
	Inverses []uint32      // of each server (policy.Inverses)
	Shares   []float64     // of new flows, where they are dealt (topo.Choice)
	Silent   time.Duration // after which a flow without packets does not count; 0: never
	Owed     []int         // the servers that the next flows are for, one each
}

// Queue is the requests in hand of a server, as its agent reported them.
type Queue struct {
	Server   int    // of the service
	Requests uint32 // of all LBs
	Begun    uint32 // Seat.Begun when it was asked
}

// Health has the counts of a server's answers, over all services. They wrap.
type Health struct {
	Offered     uint32 // new TCP connections that were offered to it before all others
	Repeated    uint32 // SYNs of such that came again
	Answered    uint32 // new connections that it answered, or passed on
	Unreachable uint32 // ICMP errors about packets to it
	Alive       uint32 // checks that came back from its agent
	Reached     bool   // its next hop is known
}

// Check is a question to the agent of a server, about a service, to show that it lives.
type Check struct {
	VIP    topo.VIP
	Server topo.Server
}

// Suspect is a sender of signals without a valid tag, as they name it.
type Suspect struct {
	Sender  netip.Prefix // its locator
	Packets uint64
}

// Verified is the number of instructions of a packet's program that the kernel's
// verifier went through when it was loaded. Its limit is a million.
type Verified struct {
	Program      string
	Instructions uint32
}

// Load is a service's load, as its agent sees it.
type Load struct {
	Measure   topo.Measure // in use
	Instead   string       // why it is not the configured measure; empty: it is
	NoRecount string       // why that measure's counts are never set right; empty: they are
	Work      *Work        // the parts of the load measure `work`; nil: it is not in use
	Threshold uint32       // c of static and dynamic acceptance
	Busy      uint32       // without the connections that wait to be accepted and have sent nothing
	Known     bool         // Busy is; an application's own word may not be
	Asking    uint32       // connections with a request in progress
	Answered  uint64       // requests: payload inward, then outward
	Expected  uint32       // accepted in the last second and not arrived, uncapped
	Open      uint32       // established sockets; counted for the signal `sockets` only
}

// InService is how many requests make progress: on so many CPUs, or waiting for something else than
// a CPU, which only the load measure `work` sees. The others queue.
func (l *Load) InService(cores float64) float64 {
	if w := l.Work; w != nil {
		return min(float64(w.Run), cores) + float64(max(w.Blocked, w.Out))
	}
	return min(float64(l.Busy), cores)
}

// Busy is their number.
func (w *Work) Busy() uint32 { return w.Unread + w.Early + w.Run + max(w.Blocked, w.Out) }

// Work is a service's requests in progress, by the place that each is at.
type Work struct {
	Unread  uint32 // accepted connections with data that no task has read, or that waits behind another in the hand of one
	Early   uint32 // such connections in the accept queue
	Run     uint32 // tasks that run, or would if there were a CPU
	Blocked uint32 // tasks that sleep within a request
	Out     uint32 // connections to others that owe an answer
}
