package sim

import "time"

// The engine's view of a policy, and the methods that a policy may call. Family.New returns a
// Chooser or an Offerer; the other interfaces are looked for in the same value.

// Chooser decides at the LB, alone.
type Chooser interface {
	// Choose gives the server of a request that has just reached the LB.
	Choose(lb int32, r *Request) int32
}

// Offerer decides at the servers: a request is offered to Policy.Choices servers,
// drawn by the flow's hash, in turn.
type Offerer interface {
	// Offer reports whether the server r.Server() takes r. If the last of the list
	// (r.Last) does not, the offer returns to the server that Return named, the
	// first unless it did, and that one must take it.
	Offer(r *Request) bool
}

// Leader puts a server of its own at the head of an offer's list.
type Leader interface {
	// Lead names the server; −1: the list stays as it was drawn.
	Lead(r *Request) int32
}

// Reporter is a policy with servers that report on the way, in the signals that
// pass the LB: the accepting SYN-ACK, which takes a hop more for that, and the
// flow's end.
type Reporter interface {
	Report(r *Request)    // the server writes a signal of r
	Signalled(r *Request) // the signal passes r.LB()
}

// Gauge measures at the servers: r is complete.
type Gauge interface {
	Served(r *Request)
}

// Acceptor counts at the servers: r has just been accepted.
type Acceptor interface {
	Accepted(r *Request)
}

// Messenger has messages of its own, such as probes.
type Messenger interface {
	// Arrived is a message that Engine.Send has sent, at the end of its way.
	Arrived(message int32)
}

// Waiter is a Chooser that asks before it chooses.
type Waiter interface {
	// Ask reports whether the request waits at its LB, until Engine.Proceed.
	Ask(request int32, r *Request) bool
}

// Tracker follows the flows that an LB has in its table: when they begin, and
// when they end, having begun at the instant opened (ns).
type Tracker interface {
	Open(lb, server int32)
	Close(lb, server int32, opened int64)
}

// Establisher is a Tracker that knows embryonic flows from established ones.
type Establisher interface {
	// Established: the first data of a flow, which began at the instant opened (ns),
	// passes the LB.
	Established(lb, server int32, opened int64)
	// Finished: such a flow ends. Close follows.
	Finished(lb, server int32, opened int64)
}

// Flooded has an entry for every SYN, also for SYNs with forged sources
// (Farm.Flood).
type Flooded interface {
	// Spoofed gives such a SYN a server, by a random word.
	Spoofed(lb int32, word uint64) (server int32)
	// Expired: the LB forgets it.
	Expired(lb, server int32)
}

// Member is called whenever a server begins to take flows, or does no longer:
// Engine.In returns which. A policy that is no Member may go on choosing a server
// that is out; the flow's hash then leads to another.
type Member interface {
	Member(server int32)
}

// Keeper knows whether an LB that has lost its state finds the server of a flow in
// progress. Without one it is found where the flow's hash leads: the server of a
// Chooser, the list of an Offerer.
type Keeper interface {
	Keeps(r *Request) bool
}

// Watcher is called whenever a server's load has changed.
type Watcher interface {
	Changed(server int32)
}

// Now is the virtual time since the run began.
func (e *Engine) Now() time.Duration { return time.Duration(e.Instant) }

// Assigned is how many requests LBs have sent to the server and it has not
// answered, those on their way included.
func (e *Engine) Assigned(server int32) int { return int(e.Servers[server].Assigned) }

// Busy is how many requests the server has accepted and not answered.
func (e *Engine) Busy(server int32) int { return int(e.Servers[server].Taken) }

// Word is a random word of the request, the same under every policy.
func (e *Engine) Word(r *Request) uint64 { return e.Choice.At(uint64(r.Number)) }

// Draw fills list with different servers, drawn by the flow's hash.
// It returns how many: fewer if fewer take flows, or if the farm has a table: its
// lists are as long as the policy needs.
func (e *Engine) Draw(list []int32, r *Request) int { return e.draw(list, e.Hash(r)) }

// Every runs a job again and again, the first time after one period. Only
// Family.New may call it.
func (e *Engine) Every(period time.Duration, job func()) {
	e.Timers = append(e.Timers, timer{int64(period), job})
}

// Send lets a message of a Messenger arrive after a while.
func (e *Engine) Send(after time.Duration, message int32) {
	e.Hops.Push(e.Instant+int64(after), arriving, message)
}

// Proceed lets a request that waits at its LB go on.
func (e *Engine) Proceed(request int32) { e.forward(request) }

// Last reports whether the server that has the offer is the last of the list.
func (r *Request) Last() bool { return r.Visit == r.Offered-1 }

// Return names the server that has the offer as the one that must take it if none
// does.
func (r *Request) Return() { r.LeastOf = r.Visit }
