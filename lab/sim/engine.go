package sim

import "slices"

// Engine is a run. A policy reads its state, and calls the methods of part.go and members.go.
type Engine struct {
	Farm    Farm
	Work    Workload
	Policy  Policy
	Instant int64 // ns since the run began

	Requests requests
	Hops     Hops
	alarms   alarms
	Stations []Station // for each server, then the disks if there are any
	Servers  []server

	clock    *clock
	service  *sampler
	io       *sampler
	rtt      *sampler
	split    Draws
	hash     Draws
	hop      Draws
	Choice   Draws
	hopSpan  uint64
	Sent     uint32
	coming   int64 // ns, when the next request is sent
	tables   []flowTable
	Chooser  Chooser // nil: the LB offers
	Offerer  Offerer // nil: the LB decides alone
	leader   Leader  // these and the next: nil if the policy does not care
	reporter Reporter
	measure  Gauge
	acceptor Acceptor
	Track    Tracker
	Life     Establisher
	flooded  Flooded
	Messages Messenger
	waiter   Waiter
	watch    Watcher
	member   Member
	keeper   Keeper
	members  members
	dead     []bool // LBs; nil: none
	Fault    error  // of an event
	Timers   []timer
	Ends     bool // the end of a flow concerns its LB
	signals  bool // servers signal to the LB: the SYN-ACK and the end pass it
	Rival    rival
	forgery  forgery
	stopped  bool // by Workload.Watch

	Result tally
}

// server is the state of a server beyond its queues.
type server struct {
	Room     int32
	Assigned int32   // sent there by an LB, neither finished nor refused
	Taken    int32   // accepted and not finished: busy to an agent
	Pending  float64 // ns of service of those on their way to the cores
	Disk     float64 // ns of service of those on their way to the disk
}

type timer struct {
	every int64 // ns
	Run   func()
}

// watchEvery is how many events are between two calls of Workload.Watch, some 5 ms.
const watchEvery = 1 << 16

// flowTable is an LB's: a bucket holds one flow (HLB §IV-A2).
type flowTable []bool

// Loop runs until every request is answered.
func (e *Engine) Loop() {
	for e.Step() {
		e.Result.events++
		if e.Result.events%watchEvery == 0 && e.Work.Watch != nil && !e.Work.Watch(int(e.Sent)-e.Result.Open) {
			e.stopped = true
			return
		}
	}
}

// Step processes the next event; false when nothing is left to answer, or nothing
// to answer it with.
func (e *Engine) Step() bool {
	due := e.alarms.First()
	at := due
	if len(e.Hops.Heap) > 0 {
		at = min(at, e.Hops.Heap[0].At)
	}
	switch {
	case e.coming <= at && e.coming != Never:
		e.Instant = e.coming
		e.send()
	case at == Never || e.Result.Open == 0 && e.coming == Never:
		return false
	case due == at:
		e.Instant = at
		e.complete(e.alarms.Earliest())
	case (e.Hops.Heap[0].Kind == Ticking || e.Hops.Heap[0].Kind == redrawing) && e.stuck():
		return false
	default:
		next := e.Hops.Pop()
		e.Instant = next.At
		e.handle(next)
	}
	return true
}

// stuck reports that nothing but timers is left to happen, so that a request that is
// still open was lost by a fault: timers alone would tick for ever.
func (e *Engine) stuck() bool {
	return e.alarms.First() == Never && e.coming == Never &&
		!slices.ContainsFunc(e.Hops.Heap, func(next Coming) bool { return next.Kind != Ticking && next.Kind != redrawing })
}

func (e *Engine) handle(next Coming) {
	switch next.Kind {
	case atLB:
		e.atLB(next.Request)
	case atServer:
		e.atServer(next.Request)
	case returned:
		e.accept(next.Request)
	case Data:
		e.data(next.Request)
	case accepted:
		e.reporter.Signalled(&e.Requests.All[next.Request])
	case closing:
		e.forget(next.Request)
	case Ticking:
		t := e.Timers[next.Request]
		t.Run()
		e.Hops.Push(e.Instant+t.every, Ticking, next.Request)
	case shifting:
		e.shift(int(next.Request))
	case happening:
		e.happen(int(next.Request))
	case arriving:
		e.Messages.Arrived(next.Request)
	case established:
		e.establish(&e.Requests.All[next.Request])
	case redrawing:
		e.disturb(next.Request)
	case spoofing:
		e.spoof()
	case expiring:
		e.expire(next.Request)
	}
}

// The pairs of hops of one flow: which random word gives their times.
const (
	ToServer = iota // client → LB, LB → server
	SYNACK          // server → LB or client, LB → client
	ToData          // client → LB, LB → server
	ToReply         // server → client, the end → LB
	PassedOn        // + visit: candidate → candidate, candidate → the one returned to
)

const HopPairs = PassedOn + MaxChoices

func (e *Engine) pair(r *Request, which uint64) (int64, int64) {
	return e.HopsOf(e.hop.At(uint64(r.Number)*HopPairs + which))
}

// HopsOf are two hops from the halves of a word.
func (e *Engine) HopsOf(word uint64) (int64, int64) {
	least := int64(e.Farm.HopMin)
	return least + int64((word>>32)*e.hopSpan>>32), least + int64((word&0xffffffff)*e.hopSpan>>32)
}
