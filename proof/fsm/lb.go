package fsm

import (
	"slices"
	"time"

	"proffer/wire"
)

// Pool is the list of servers of the flow's bucket: its candidates in their
// order, and all servers that may have it, the candidates first.
type Pool struct {
	Candidates, Members []Node
}

// LB is a load balancer's state of the flow. LB_LISTEN and HUNTING of the
// paper are both "no entry": an offer makes none.
type LB struct {
	Flow      Flow      // STEER(s)
	Embryonic Embryonic // STEER(s) until the client has acknowledged
	past      memory
}

// Flow is an established connection; Known false: there is none.
type Flow struct {
	Known      bool
	Server     Node
	Generation uint16
	Announced  uint16 // of the last SYN that the server was asked about
	Closed     uint8
	Seen       time.Duration
}

// The sides that have closed a flow.
const (
	ClosedClient = 1
	ClosedServer = 2
	ClosedReset  = 4 // by the server
)

// Over reports whether only the linger time is left of a flow.
func (f Flow) Over() bool { return f.Closed&ClosedReset != 0 || f.Closed&3 == 3 }

// held reports whether the flow's server must release it before another server has a
// connection of that generation.
func (f Flow) held(generation uint16) bool {
	return f.Known && !f.Over() && f.Generation != generation
}

// silence is the time in which a server that lives answers a question.
const silence = 5 * unit

// keeps reports whether a signal of a server leaves the flow as it is: its own server has not
// released it, nor been asked in vain.
func (f Flow) keeps(now time.Duration, in Packet) bool {
	asked := f.Announced == in.Generation && dated(now)-f.Seen >= silence
	return f.held(in.Generation) && f.Server != in.From && !asked
}

func (f *Flow) touch(now time.Duration) { f.Seen = dated(now) }

// unit is the resolution of an entry's age.
const unit = 1 << 28

func dated(now time.Duration) time.Duration { return now / unit * unit }

// Embryonic is a connection that a server took.
type Embryonic struct {
	Known      bool
	Server     Node
	Generation uint16
	Expects    uint32 // the client's acknowledgement
	Seen       time.Duration
}

// embryonicLife bounds an embryonic entry's life; then it counts as none.
const embryonicLife = 10 * time.Second / unit * unit

func (e Embryonic) alive(now time.Duration) bool { return e.Known && dated(now)-e.Seen < embryonicLife }

// Step is a packet at the LB.
func (l LB) Step(pool Pool, now time.Duration, in Packet) (LB, Outcome) {
	switch in.Function {
	case wire.None:
		return l, l.client(pool, now, in.TCP)
	case wire.RecoverStickiness:
		return l, goOn(pool, in)
	}
	if !l.mayHave(pool, now, in.From) {
		return l, Outcome{Why: []string{"drop_not_candidate"}}
	}
	switch in.Function {
	case wire.CreateStickiness:
		if in.has(wire.RST) { // no word of a connection that lives
			return l, l.remove(now, in)
		}
		return l, l.create(now, in)
	case wire.RemoveStickiness:
		return l, l.remove(now, in)
	case wire.NotMine:
		return l, l.notMine(pool, now, in)
	}
	return l, Outcome{Why: []string{"drop_unknown_function"}}
}

// mayHave reports whether a server may have the flow: it is one that would be asked, or has it.
func (l *LB) mayHave(pool Pool, now time.Duration, server Node) bool {
	return slices.Contains(pool.Members, server) || l.Flow.Known && l.Flow.Server == server ||
		l.Embryonic.alive(now) && l.Embryonic.Server == server
}

// client is a packet of the client.
func (l *LB) client(pool Pool, now time.Duration, s TCP) Outcome {
	switch {
	case s.opens(): // II: LB_LISTEN, HUNTING + SYN; not II: STEER + SYN
		return l.offer(pool, now, s)
	case l.Flow.Known: // II: STEER + data
		l.Flow.touch(now)
		if l.Flow.Closed&3 == 3 && s.Payload > 0 { // of another connection, it may be
			return l.recover(pool, now, s)
		}
		if s.has(wire.FIN) { // a RST alone may be forged, and unpins nothing
			l.Flow.Closed |= ClosedClient
		}
		return steer(l.Flow.Server, l.Flow.Generation)
	case l.Embryonic.alive(now):
		return l.establish(pool, now, s)
	default: // II: LB_LISTEN + data; not II: HUNTING + data
		return l.recover(pool, now, s)
	}
}

// offer asks the candidates; the last owner of the five-tuple comes first.
func (l *LB) offer(pool Pool, now time.Duration, s TCP) Outcome {
	times := l.seen(now, s.Seq)
	first, why := NoNode, "offer"
	if times > 0 {
		why = "offer_retry"
	}
	last, held := NoNode, false
	if l.Flow.Known {
		last = l.Flow.Server
	} else if l.Embryonic.alive(now) {
		last = l.Embryonic.Server
	}
	if last != NoNode && times < 2 { // else it does not answer
		first, why = last, "offer_again"
		held = l.Flow.held(s.generation())
	}
	if held { // asked, from now on
		l.Flow.Announced = s.generation()
		l.Flow.touch(now)
	}
	n := len(pool.Candidates)
	var list []Node
	if first != NoNode {
		list = append(list, first)
	}
	for i := range n { // unanswered twice: in another order
		if c := pool.Candidates[(i+times/2)%n]; c != first {
			list = append(list, c)
		}
	}
	forced := 0
	if times > 1 && times%2 == 1 { // the others may be down
		forced = 1
	}
	out := offerTo(list, forced, SID{Generation: s.generation(), Retry: times > 0})
	out.Route[0].Held = held
	out.Why = []string{why}
	return out
}

// offerTo is an offer which the first `forced` of the list must take, and the
// last: "connectForce".
func offerTo(list []Node, forced int, like SID) Outcome {
	out := Outcome{Act: Send}
	for i, node := range list {
		like.Node, like.Function = node, wire.ConnectAvail
		if i < forced || i == len(list)-1 {
			like.Function = wire.ConnectForce
		}
		out.Route = append(out.Route, like)
	}
	if len(list) == 0 {
		return Outcome{Why: []string{"drop_no_server"}}
	}
	return out
}

// recover asks for the packet's owner. A packet that comes again has found none: the
// order turns, as a host on the way may be down.
func (l *LB) recover(pool Pool, now time.Duration, s TCP) Outcome {
	turn := l.seen(now, s.Seq) % len(pool.Members)
	list := append(slices.Clone(pool.Members[turn:]), pool.Members[:turn]...)
	return question(list, "recover")
}

// seen notes a packet without an entry and returns how often it came before.
func (l *LB) seen(now time.Duration, seq uint32) int {
	was, known := l.past.find(seq)
	if !known || seconds(now)-was.second > 64 {
		was.times = 0
	}
	l.past = l.past.with(remembered{seq, seconds(now), was.times + 1})
	return int(was.times)
}

func steer(server Node, generation uint16) Outcome {
	return Outcome{
		Act: Send, Why: []string{"steer"},
		Route: []SID{{Node: server, Function: wire.AckStickiness, Generation: generation}},
	}
}

// question asks servers for the packet's flow; the last server asked decides.
func question(list []Node, why ...string) Outcome {
	out := Outcome{Act: Send, Why: why}
	for _, node := range list {
		out.Route = append(out.Route, SID{Node: node, Function: wire.RecoverStickiness})
	}
	return out
}

// establish steers a packet of an embryonic flow. Only an acknowledgement of its own
// server's SYN-ACK establishes the flow; any other belongs to another server.
func (l *LB) establish(pool Pool, now time.Duration, s TCP) Outcome {
	e := l.Embryonic
	out := steer(e.Server, e.Generation)
	switch {
	case s.has(wire.ACK) && s.Ack == e.Expects:
		l.Flow = established(now, e.Server, e.Generation)
		l.Embryonic = Embryonic{}
		if s.has(wire.FIN) {
			l.Flow.Closed = ClosedClient
		}
		out.Why = append(out.Why, "flow_established")
	case s.has(wire.ACK):
		return l.recover(pool, now, s)
	}
	return out
}

func established(now time.Duration, server Node, generation uint16) Flow {
	return Flow{Known: true, Server: server, Generation: generation, Announced: generation, Seen: dated(now)}
}

// create is createStickiness(s). Within one generation the first server stays.
func (l *LB) create(now time.Duration, in Packet) Outcome {
	e := l.Embryonic
	held := e.alive(now) && !l.Flow.Known
	switch {
	case l.Flow.Known && l.Flow.Generation == in.Generation:
		l.Flow.touch(now)
		if l.Flow.Server == in.From {
			l.Flow.Closed |= in.Closed
			return Outcome{Act: Client, Why: []string{"stickiness_repeated"}}
		}
		return conflict(in, true)
	case l.Flow.keeps(now, in) && in.has(wire.SYN):
		return Outcome{Why: []string{"drop_not_released"}}
	case l.Flow.keeps(now, in):
		return Outcome{Act: Client, Why: []string{"create_old_generation"}}
	case in.has(wire.SYN) && held && e.Generation == in.Generation && e.Server != in.From:
		return conflict(in, false)
	case !in.has(wire.SYN): // its kernel vouches for it
		l.Embryonic, l.Flow = Embryonic{}, established(now, in.From, in.Generation)
		l.Flow.Closed = in.Closed
		return Outcome{Act: Client, Why: []string{"stickiness_recovered"}}
	}
	l.Flow = Flow{} // II: HUNTING + createStickiness
	l.Embryonic = Embryonic{Known: true, Server: in.From, Generation: in.Generation, Expects: in.Seq + 1, Seen: dated(now)}
	if held && e.Generation == in.Generation {
		return Outcome{Act: Client, Why: []string{"stickiness_repeated"}}
	}
	return Outcome{Act: Client, Why: []string{"stickiness_created"}}
}

// conflict ends the request of a server that came second, once the client has
// acknowledged the first: before, it may have got this answer by another LB.
func conflict(in Packet, acknowledged bool) Outcome {
	if !in.has(wire.SYN) || !acknowledged {
		return Outcome{Why: []string{"stickiness_conflict", "drop_stickiness_conflict"}}
	}
	return Outcome{
		Act: Send, RST: true, Why: []string{"stickiness_conflict", "reject"},
		Route: []SID{{Node: in.From, Function: wire.Reject, Generation: in.Generation}},
	}
}

// remove is removeStickiness(s); II: STEER(s). The entry goes when both sides
// have closed, after a while without packets. A flow without an entry gets a closed one: a
// createStickiness that comes later changes nothing.
func (l *LB) remove(now time.Duration, in Packet) Outcome {
	f, e := &l.Flow, l.Embryonic
	switch {
	case f.Known && (f.Generation != in.Generation || f.Server != in.From):
		return Outcome{Act: Client, Why: []string{"remove_old_generation"}}
	case f.Known:
		f.touch(now)
	case e.alive(now) && (e.Generation != in.Generation || e.Server != in.From):
		return Outcome{Act: Client, Why: []string{"remove_unknown"}}
	default:
		l.Embryonic, *f = Embryonic{}, established(now, in.From, in.Generation)
	}
	f.Closed |= in.Closed
	if in.has(wire.RST) {
		f.Closed |= ClosedReset
	} else {
		f.Closed |= ClosedServer
	}
	return Outcome{Act: Client, Why: []string{"stickiness_removed"}}
}

// notMine is a client's packet that a server gave back: others are asked, once.
func (l *LB) notMine(pool Pool, now time.Duration, in Packet) Outcome {
	but := func(list []Node) []Node {
		if len(pool.Members) < 2 {
			return list // no other server: it has the last word
		}
		return slices.DeleteFunc(slices.Clone(list), func(n Node) bool { return n == in.From })
	}
	f := &l.Flow
	if in.opens() && in.Held { // a live connection, which its stack answers for
		if f.Known && f.Server == in.From {
			f.Announced = f.Generation
			f.touch(now)
		}
		return Outcome{
			Act: Send, Why: []string{"offer_challenge"},
			Route: []SID{{Node: in.From, Function: wire.ConnectForce, Generation: in.Generation}},
		}
	}
	if in.opens() && f.held(in.Generation) && f.Server == in.From {
		*f = Flow{}
		out := offerTo(but(pool.Candidates), 0, SID{Generation: in.Generation})
		out.Why = append(out.Why, "stale_removed")
		if out.Act == Send {
			out.Why = append(out.Why, "offer_returned")
		}
		return out
	}
	if in.opens() { // no listener there: they must take it, or refuse it
		out := offerTo(but(pool.Candidates), len(pool.Candidates), SID{Generation: in.Generation, Final: true})
		if out.Act == Send {
			out.Why = []string{"offer_returned"}
		}
		return out
	}
	var why []string
	if l.Flow.Known && l.Flow.Server == in.From && l.Flow.Generation == in.Generation {
		l.Flow, why = Flow{}, []string{"stale_removed"}
	}
	if l.Embryonic.alive(now) && l.Embryonic.Server == in.From && l.Embryonic.Generation == in.Generation {
		l.Embryonic, why = Embryonic{}, []string{"stale_removed"}
	}
	return question(but(pool.Members), append(why, "recover_returned")...)
}

// Positions of a list that goes on: members, the first server, candidates.
const placeCandidates = 241

// goOn sends a packet to the rest of a list that did not fit it.
func goOn(pool Pool, in Packet) Outcome {
	like := SID{Generation: in.Generation, Retry: in.Retry, Final: in.Final}
	if in.opens() {
		out := offerTo(pool.Candidates[max(in.Position-placeCandidates, 0):], 0, like)
		out.Why = []string{"list_continued"}
		return out
	}
	out := question(pool.Members[in.Position:], "list_continued")
	for i := range out.Route {
		like.Node, like.Function = out.Route[i].Node, wire.RecoverStickiness
		out.Route[i] = like
	}
	return out
}

// Sweep removes expired entries.
func (l LB) Sweep(now, linger, idle time.Duration) LB {
	limit := idle
	if l.Flow.Over() {
		limit = linger
	}
	if dated(now)-l.Flow.Seen > limit+unit { // the rest of the unit does not count
		l.Flow = Flow{}
	}
	if !l.Embryonic.alive(now) {
		l.Embryonic = Embryonic{}
	}
	return l
}
