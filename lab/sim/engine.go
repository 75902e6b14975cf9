package sim

import "slices"

// Engine is one run. A policy sees the methods that part.go exports.
type Engine struct {
	farm   Farm
	work   Workload
	policy Policy
	now    int64

	requests requests
	hops     hops
	alarms   alarms
	stations []station // one a server, then the disks if there are any
	servers  []server

	clock    *clock
	service  *sampler
	io       *sampler
	rtt      *sampler
	split    draws
	hash     draws
	hop      draws
	choice   draws
	hopSpan  uint64
	sent     uint32
	coming   int64 // ns, when the next request is sent
	tables   []flowTable
	chooser  Chooser // nil: the LB offers
	offerer  Offerer // nil: the LB decides alone
	leader   Leader  // these and the next: nil if the policy does not care
	reporter Reporter
	measure  Gauge
	acceptor Acceptor
	track    Tracker
	life     Establisher
	flooded  Flooded
	messages Messenger
	waiter   Waiter
	watch    Watcher
	member   Member
	keeper   Keeper
	members  members
	dead     []bool // LBs; nil: none
	fault    error  // of an event
	timers   []timer
	ends     bool // the end of a flow concerns its LB
	signals  bool // servers signal to the LB: the SYN-ACK and the end pass it
	rival    rival
	forgery  forgery
	stopped  bool // by Workload.Watch

	result tally
}

// server is the state of a server beyond its queues.
type server struct {
	room     int32
	assigned int32   // sent there by an LB, neither finished nor refused
	taken    int32   // accepted and not finished: busy to an agent
	pending  float64 // ns of service of those on their way to the cores
	disk     float64 // ns of service of those on their way to the disk
}

type timer struct {
	every int64 // ns
	run   func()
}

// watchEvery is how many events are between two calls of Workload.Watch, some 5 ms.
const watchEvery = 1 << 16

// flowTable is an LB's: a bucket holds one flow (HLB §IV-A2).
type flowTable []bool

// loop runs until every request is answered.
func (e *Engine) loop() {
	for e.step() {
		e.result.events++
		if e.result.events%watchEvery == 0 && e.work.Watch != nil && !e.work.Watch(int(e.sent)-e.result.open) {
			e.stopped = true
			return
		}
	}
}

// step processes the next event; false when nothing is left to answer, or nothing
// to answer it with.
func (e *Engine) step() bool {
	due := e.alarms.first()
	at := due
	if len(e.hops.heap) > 0 {
		at = min(at, e.hops.heap[0].at)
	}
	switch {
	case e.coming <= at && e.coming != never:
		e.now = e.coming
		e.send()
	case at == never || e.result.open == 0 && e.coming == never:
		return false
	case due == at:
		e.now = at
		e.complete(e.alarms.earliest())
	case (e.hops.heap[0].kind == ticking || e.hops.heap[0].kind == redrawing) && e.stuck():
		return false
	default:
		next := e.hops.pop()
		e.now = next.at
		e.handle(next)
	}
	return true
}

// stuck reports that nothing but timers is left to happen, so that a request that is
// still open was lost by a fault: timers alone would tick for ever.
func (e *Engine) stuck() bool {
	return e.alarms.first() == never && e.coming == never &&
		!slices.ContainsFunc(e.hops.heap, func(next event) bool { return next.kind != ticking && next.kind != redrawing })
}

func (e *Engine) handle(next event) {
	switch next.kind {
	case atLB:
		e.atLB(next.request)
	case atServer:
		e.atServer(next.request)
	case returned:
		e.accept(next.request)
	case data:
		e.data(next.request)
	case accepted:
		e.reporter.Signalled(&e.requests.all[next.request])
	case closing:
		e.forget(next.request)
	case ticking:
		t := e.timers[next.request]
		t.run()
		e.hops.push(e.now+t.every, ticking, next.request)
	case shifting:
		e.shift(int(next.request))
	case happening:
		e.happen(int(next.request))
	case arriving:
		e.messages.Arrived(next.request)
	case established:
		e.establish(&e.requests.all[next.request])
	case redrawing:
		e.disturb(next.request)
	case spoofing:
		e.spoof()
	case expiring:
		e.expire(next.request)
	}
}

// The pairs of hops of one flow: which random word gives their times.
const (
	toServer = iota // client → LB, LB → server
	synAck          // server → LB or client, LB → client
	toData          // client → LB, LB → server
	toReply         // server → client, the end → LB
	passedOn        // + visit: candidate → candidate, candidate → the one returned to
)

const hopPairs = passedOn + maxChoices

func (e *Engine) pair(r *Request, which uint64) (int64, int64) {
	return e.hopsOf(e.hop.at(uint64(r.number)*hopPairs + which))
}

// hopsOf are two hops from the halves of a word.
func (e *Engine) hopsOf(word uint64) (int64, int64) {
	least := int64(e.farm.HopMin)
	return least + int64((word>>32)*e.hopSpan>>32), least + int64((word&0xffffffff)*e.hopSpan>>32)
}
