package sim

import (
	"fmt"
	"slices"
	"time"

	"proffer/policy"
)

// Event changes the farm during a run.
type Event struct {
	At      time.Duration
	Kind    EventKind
	Servers []int // Join, Drain, Fail
	LB      int   // FailLB
}

// EventKind is the change that an event makes.
type EventKind uint8

const (
	Join   EventKind = iota // the servers take flows from now on; a server was absent before if this is its first event
	Drain                   // the servers get no new flow and finish those that they have
	Fail                    // the servers stop: connections are lost, SYNs unanswered
	FailLB                  // the LB stops for good, and its state is lost; the others get its flows
)

func (k EventKind) String() string { return [...]string{"join", "drain", "fail", "fail-lb"}[k] }

// absent are the servers that join before anything else happens to them.
func (f Farm) absent() (absent []int) {
	seen := map[int]bool{}
	for _, v := range f.inOrder() {
		for _, s := range v.Servers {
			if v.Kind == Join && !seen[s] {
				absent = append(absent, s)
			}
			seen[s] = true
		}
	}
	return absent
}

func (f Farm) inOrder() []Event {
	return slices.SortedStableFunc(slices.Values(f.Events), func(a, b Event) int { return int(min(1, max(-1, a.At-b.At))) })
}

// checkEvents rejects an event that names an absent server or LB, or leaves the farm
// without a server or an LB.
func checkEvents(f Farm) string {
	n, lbs := len(f.Servers), f.LBs
	in := slices.Repeat([]bool{true}, n)
	for _, v := range f.Events {
		problem := first(
			rule{v.At < 0, fmt.Sprintf("at %v", v.At)},
			rule{v.Kind > FailLB, fmt.Sprintf("unknown kind %d", v.Kind)},
			rule{v.Kind == FailLB && (v.LB < 0 || v.LB >= lbs), fmt.Sprintf("LB %d: want 0 to %d", v.LB, lbs-1)},
			rule{v.Kind < FailLB && len(v.Servers) == 0, "no servers"},
			rule{slices.ContainsFunc(v.Servers, func(s int) bool { return s < 0 || s >= n }), fmt.Sprintf("servers %v: want 0 to %d", v.Servers, n-1)},
		)
		if problem != "" {
			return "event " + v.Kind.name() + ": " + problem
		}
	}
	for _, s := range f.absent() {
		in[s] = false
	}
	failed := map[int]bool{}
	for _, v := range f.inOrder() {
		for _, s := range v.Servers {
			in[s] = v.Kind == Join
		}
		if v.Kind == FailLB {
			failed[v.LB] = true
		}
		if !slices.Contains(in, true) || len(failed) == lbs {
			return fmt.Sprintf("event %v at %v leaves no server, or no LB", v.Kind, v.At)
		}
	}
	return ""
}

func (k EventKind) name() string {
	if k > FailLB {
		return "?"
	}
	return k.String()
}

// happen is an event that is due.
func (e *Engine) happen(number int) {
	v := e.Farm.Events[number]
	if v.Kind == FailLB {
		e.failLB(int32(v.LB))
		return
	}
	for _, i := range v.Servers {
		s := int32(i)
		if e.members.out[s] != (v.Kind != Join) {
			e.members.out[s] = v.Kind != Join
			e.members.count += map[bool]int{true: 1, false: -1}[v.Kind == Join]
		}
		if v.Kind == Fail {
			e.members.down[s] = true
			e.failServer(s)
		}
		e.joined(s)
		if v.Kind == Join {
			e.members.down[s] = false
		}
	}
	if err := e.fill(); err != nil {
		e.Fault = err
	}
}

// joined lets the policy see that the server takes flows now, or no longer.
func (e *Engine) joined(server int32) {
	if e.member != nil {
		e.member.Member(server)
	}
	if e.watch != nil {
		e.watch.Changed(server)
	}
}

// failServer ends every connection of a server.
func (e *Engine) failServer(server int32) {
	n := int32(len(e.Servers))
	for at := server; int(at) < len(e.Stations); at += n {
		st := &e.Stations[at]
		st.Advance(e.Instant)
		st.Running, st.Waiting, st.queued = st.Running[:0], 0, 0
		e.alarms.Set(at, st.settle())
	}
	for i := range e.Requests.All {
		r := &e.Requests.All[i]
		if r.Server == server && (r.Phase == accepting || r.Phase == working) {
			e.lose(int32(i))
		}
	}
}

// lose takes a request from a server that has failed.
func (e *Engine) lose(i int32) {
	r := &e.Requests.All[i]
	if !r.gone {
		e.Result.end(e.Instant, r, lost)
	}
	onItsWay := r.Phase == accepting
	e.release(r)
	if onItsWay {
		r.Phase = buried // its data is on its way still
		return
	}
	e.bury(i)
}

// release gives back the room of a request without an answer at its server.
func (e *Engine) release(r *Request) {
	if r.Phase == working {
		r.Demand = 0
	}
	r.gone, r.Phase = true, Over
	e.Servers[r.Server].Taken--
	e.unassign(r, r.Server)
}

// bury lets the LB forget a request without an answer.
func (e *Engine) bury(i int32) {
	r := &e.Requests.All[i]
	r.gone, r.Phase = true, Over
	first, second := e.pair(r, ToReply)
	e.end(i, first+second, second)
}

// failLB loses an LB's state. The other LBs get its flows: one that the new LB
// finds goes on, any other is reset. A flow that no server has accepted yet goes
// on: its client repeats lost packets.
func (e *Engine) failLB(lb int32) {
	if e.dead == nil {
		e.dead = make([]bool, e.Farm.LBs)
	}
	e.dead[lb] = true
	for i := range e.Requests.All {
		r := &e.Requests.All[i]
		if r.LB != lb || r.gone || r.Phase == Over || r.Phase == buried {
			continue
		}
		e.adopt(r)
		switch {
		case r.Phase == opening:
		case e.keeps(r):
			e.Result.recovered++
		default:
			r.gone = true // the server works on and finds the client gone
			e.Result.end(e.Instant, r, reset)
		}
	}
}

// reroute is the edge router's choice among the LBs that are left.
func (e *Engine) reroute(r *Request) {
	var alive []int32
	for i, dead := range e.dead {
		if !dead {
			alive = append(alive, int32(i))
		}
	}
	r.LB = alive[Below(policy.Mix(e.hash.At(2*uint64(r.Number))), len(alive))]
}

// adopt moves a flow to another LB.
func (e *Engine) adopt(r *Request) {
	tracked, alive := r.bucket != None && e.Track != nil, r.alive
	if tracked {
		e.untrack(r)
	}
	e.reroute(r)
	if tracked && e.enter(r) {
		r.Opened = e.Instant
		e.Track.Open(r.LB, r.Server)
		if alive {
			e.establish(r)
		}
	}
}

// untrack takes the flow out of its LB's table.
func (e *Engine) untrack(r *Request) {
	if e.tables != nil {
		e.tables[r.LB][r.bucket] = false
	}
	if r.alive {
		e.Life.Finished(r.LB, r.Server, r.Opened)
	}
	e.Track.Close(r.LB, r.Server, r.Opened)
	r.bucket, r.alive = None, false
}

// keeps reports whether an LB that knows nothing of the flow finds its server.
func (e *Engine) keeps(r *Request) bool {
	if e.IsDown(r.Server) {
		return false
	}
	if e.keeper != nil {
		return e.keeper.Keeps(r)
	}
	if e.Offerer == nil {
		return e.One(r) == r.Server
	}
	var list [MaxChoices]int32
	n := e.draw(list[:e.choices()], e.Hash(r))
	return slices.Contains(list[:n], r.Server)
}

// A client repeats a SYN that stays without an answer after 1 s, 2 s, 4 s …
// (RFC 6298 §2), as often as Linux does by default.
const (
	firstTimeout = int64(time.Second)
	mostSYNs     = 6
)

// unanswered is a SYN that reaches a server which has failed.
func (e *Engine) unanswered(i int32) {
	r := &e.Requests.All[i]
	e.unassign(r, r.Server)
	if r.bucket != None && e.Track != nil {
		e.untrack(r)
	}
	if r.tries == mostSYNs {
		r.gone, r.Phase = true, Over
		e.Result.end(e.Instant, r, lost)
		e.Requests.give(i)
		return
	}
	r.Visit, r.LeastOf = 0, 0
	e.Hops.Push(e.Instant+firstTimeout<<r.tries, atLB, i)
	r.tries++
	e.Result.repeated++
}
