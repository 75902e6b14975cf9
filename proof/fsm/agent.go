package fsm

import (
	"slices"
	"time"

	"proffer/wire"
)

// State of the socket that the kernel holds for exactly the flow.
type State uint8

const (
	NoSocket State = iota // nothing, or a listener
	Request               // answered with SYN-ACK
	Full                  // established, or on its way out
	TimeWait
)

// Host is the answers of a server's kernel, and the load policy.
type Host struct {
	State     State
	ClientISN uint32
	ServerISN uint32
	Next      uint32 // sequence number that a full socket expects
	Window    uint32 // bytes after it that it takes
	Sent      uint32 // next own sequence number, in TIME_WAIT
	Listening bool
	Backlog   bool // the accept queue is full
	Busy      bool // the policy would rather not
}

// Agent is a server's state of the flow: LISTEN is no entry.
type Agent struct {
	Conn     Conn
	Asking   uint32
	Expected [8]Epoch // accepted and not arrived
	refused  memory
}

// Conn is an entry: WAIT(lb), or DIRECT(lb).
type Conn struct {
	Known       bool
	Established bool // the client sent a packet that a spoofed source cannot
	Direct      bool
	LB          Node
	Generation  uint16
	Next        uint32 // after the last payload or FIN seen inward
	Out         uint32 // the same outward, if Spoke; embryonic: after the SYN-ACK
	Epoch       uint32
	Flags       uint32
	Seen        time.Duration // by tick
}

// Flags of an entry.
const (
	Asking    = 1 // the last payload went inward
	Pending   = 2 // accepted, not arrived
	Owes      = 4 // has a removal to signal
	ClientFIN = 8
	ServerFIN = 16
	Doubted   = 32 // the client's RST may be one that the stack dropped
	Spoke     = 64
)

// tick is now by the unit of an entry's age.
func tick(now time.Duration) time.Duration { return now >> 20 << 20 }

// age is how long the entry was not seen.
func (c *Conn) age(now time.Duration) time.Duration { return tick(now) - c.Seen }

// Epoch counts expected arrivals, 2^27 ns at a time.
type Epoch struct{ Epoch, Count uint32 }

const waiting = 60 * time.Second // how long an embryonic entry counts

func (a *Agent) find(now time.Duration) (c *Conn, embryonic bool) {
	c = &a.Conn
	if !c.Known || !c.Established && c.age(now) > waiting {
		return nil, true
	}
	return c, !c.Established
}

// sure reports whether an entry needs no word of the kernel's: an old one may be of
// a connection that is over while its five-tuple lives elsewhere, and an embryonic one of
// a SYN that another server took, unless the packet answers this server's SYN-ACK. Once a side
// closes, the entry is enough for the packet that is next and acknowledges all that went out.
func (c *Conn) sure(now time.Duration, in Packet) bool {
	closing, next := c.Flags&(ClientFIN|ServerFIN) != 0, in.Ack == c.Out && in.Seq == c.Next && in.establishes()
	switch {
	case c.age(now) >= time.Second:
		return false
	case !c.Established:
		return next && c.Out != 0 && !closing
	}
	return !closing || next && c.Flags&Spoke != 0
}

// In is a packet for a SID of the server.
func (a Agent) In(h Host, now time.Duration, in Packet) (Agent, Outcome) {
	switch in.Function {
	case wire.ConnectAvail, wire.ConnectForce:
		return a, answerHeld(in, a.offered(h, now, in))
	case wire.AckStickiness:
		return a, a.steered(h, now, in)
	case wire.RecoverStickiness:
		return a, a.recover(h, now, in)
	case wire.Reject:
		return a, a.reject(h, now, in)
	}
	return a, Outcome{Why: []string{"drop_unknown_function"}}
}

func deliver(why ...string) Outcome { return Outcome{Act: Deliver, Why: why} }
func passOn(why string) Outcome     { return Outcome{Act: PassOn, Why: []string{why}} }

func giveBack(in Packet, why string) Outcome {
	return Outcome{
		Act: Send, Why: []string{why},
		Route: []SID{{Node: in.From, Function: wire.NotMine, Generation: in.Generation}},
	}
}

// answerHeld is the answer about an offer of which the LB has a flow with this server.
func answerHeld(in Packet, out Outcome) Outcome {
	switch {
	case !in.Held:
		return out
	case out.Act == PassOn:
		return giveBack(in, "give_back_released")
	case slices.Contains(out.Why, "accept_challenged"):
		out = giveBack(in, "give_back_live")
		out.Route[0].Held = true
	}
	return out
}

// offered is connectAvail and connectForce.
func (a *Agent) offered(h Host, now time.Duration, in Packet) Outcome {
	refuse := func(why string) Outcome {
		a.refused = a.refused.with(remembered{seq: in.Seq, second: seconds(now)})
		return passOn(why)
	}
	before, known := a.refused.find(in.Seq)
	c, _ := a.find(now)
	switch {
	case !in.opens():
		return Outcome{Why: []string{"drop_not_a_syn"}}
	case c != nil && c.Generation == in.generation(): // III: WAIT + connect…; not III: DIRECT
		c.LB, c.Seen = in.From, tick(now)
		return deliver("accept_repeated")
	case h.State == Full: // port reused, or forged: its stack challenges it
		return deliver("accept_challenged")
	case in.Others && in.Retry && known && seconds(now)-before.second < 60:
		return passOn("pass_on_again") // a second opinion could make two
	case !h.Listening && in.Others:
		return passOn("pass_on_no_listener")
	case !h.Listening && in.Final:
		return deliver("refuse_no_listener")
	case !h.Listening:
		return giveBack(in, "give_back_no_listener")
	case h.Backlog && in.Others:
		return refuse("pass_on_full")
	case h.Backlog:
		return Outcome{Act: Refuse, Why: []string{"refuse_full_reset"}}
	case h.Busy && in.Others && in.Function == wire.ConnectAvail: // III: LISTEN + connectAvail (busy)
		return refuse("pass_on_busy")
	}
	a.accept(now, in) // III: LISTEN + connectAvail (available), connectForce
	if in.Others && in.Function == wire.ConnectAvail {
		return deliver("accept_avail")
	}
	return deliver("accept_force")
}

// accept enters WAIT(lb).
func (a *Agent) accept(now time.Duration, in Packet) {
	a.arrived(&a.Conn)
	a.answered(&a.Conn)
	epoch := uint32(now >> 27)
	a.Conn = Conn{
		Known: true, LB: in.From, Generation: in.generation(), Next: in.Seq + 1,
		Epoch: epoch, Flags: Pending, Seen: tick(now),
	}
	e := &a.Expected[epoch%8]
	if e.Epoch != epoch {
		*e = Epoch{Epoch: epoch}
	}
	e.Count++
}

// owns reports whether the flow is here, by the socket table, and which connection:
// a request counts only for a packet that acknowledges its own number.
func (h Host) owns(s TCP) (mine bool, generation uint16) {
	switch h.State {
	case TimeWait: // or the five-tuple lives on elsewhere
		return h.Sent == s.Ack || s.has(wire.RST), 0
	case Full:
		return true, wire.Generation(h.ClientISN)
	case Request:
		return h.ServerISN+1 == s.Ack, wire.Generation(h.ClientISN)
	}
	return false, 0
}

// settle establishes a flow of this server, once a packet proves its client.
func (a *Agent) settle(now time.Duration, in Packet, generation uint16) (c *Conn, embryonic bool, why []string) {
	c, embryonic = a.find(now)
	if !in.establishes() || c != nil && !embryonic {
		return c, embryonic, nil
	}
	if c == nil { // the agent was restarted, or forgot it
		a.Conn = Conn{Known: true, Established: true, Direct: true, LB: in.From, Generation: generation, Next: in.Seq, Seen: tick(now)}
		return &a.Conn, false, nil
	}
	c.Established = true
	return c, false, []string{"established"}
}

// steered is ackStickiness. A packet of no flow here goes back, never to the stack, which
// would reset a connection that lives elsewhere.
func (a *Agent) steered(h Host, now time.Duration, in Packet) Outcome {
	c, embryonic := a.find(now)
	same := c != nil && c.Generation == in.Generation
	why := []string{"steered_adopted"} // not III: LISTEN + ackStickiness
	switch {
	case same: // III: WAIT, DIRECT + ackStickiness
		why = []string{"steered"}
	case c != nil:
		why = []string{"steered_other_generation"}
	}
	generation := uint16(0)
	named := in.Generation
	if !same || !c.sure(now, in) {
		mine, kernel := h.owns(in.TCP)
		switch {
		case !mine && !(same && embryonic):
			return giveBack(in, "give_back_not_mine")
		case !mine:
			return deliver("steered_embryonic")
		}
		if generation = kernel; kernel != 0 {
			named = kernel
		}
	}
	c, embryonic, settled := a.settle(now, in, named)
	if c == nil {
		return deliver("steered")
	}
	why = append(why, settled...)
	if generation != 0 {
		c.Generation = generation
	}
	switch {
	case c.Generation != in.Generation: // the LB shall learn which
		c.LB, c.Direct = in.From, false
	case !c.Direct: // III: WAIT + ackStickiness
		c.Direct = true
		why = append(why, "acknowledged")
	}
	a.observe(h, now, in.TCP, c, embryonic)
	return deliver(why...)
}

// recover is recoverStickiness; the owner signals to the LB that asked.
func (a *Agent) recover(h Host, now time.Duration, in Packet) Outcome {
	mine, generation := h.owns(in.TCP)
	switch {
	case !mine && in.Others: // III: LISTEN + recoverStickiness (not local)
		return passOn("pass_on_not_mine")
	case !mine: // the last stack asked refuses, once
		return deliver("unowned")
	}
	c, embryonic, why := a.settle(now, in, generation)
	if c != nil { // III: DIRECT + recoverStickiness (local); not III: WAIT, LISTEN
		if generation != 0 {
			c.Generation = generation
		}
		c.LB, c.Direct = in.From, false
		a.observe(h, now, in.TCP, c, embryonic)
	}
	return deliver(append(why, "recovered")...)
}

// reject is the end of a request that another server's came before.
func (a *Agent) reject(h Host, now time.Duration, in Packet) Outcome {
	c, embryonic := a.find(now)
	mine, generation := h.owns(in.TCP)
	live := h.State == Full || mine && generation == 0
	if !in.has(wire.RST) || c == nil || !embryonic || c.Generation != in.Generation || live {
		return Outcome{Why: []string{"drop_reject_stale"}}
	}
	a.arrived(c)
	a.Conn = Conn{}
	return deliver("rejected")
}

// observe keeps the facts of a packet of the client.
func (a *Agent) observe(h Host, now time.Duration, s TCP, c *Conn, embryonic bool) {
	c.Seen = tick(now)
	if !embryonic {
		a.arrived(c)
	}
	if c.Flags&Doubted != 0 && !s.has(wire.RST) && h.State == Full {
		c.Flags &^= Doubted
		c.Next = h.Next
	}
	if h.takes(s, c.Next) {
		a.asked(c, s, embryonic)
	}
	switch {
	case !s.has(wire.RST):
	case h.State == Full && h.Next == s.Seq, h.State != Full && c.Next == s.Seq:
		c.Flags |= ClientFIN | ServerFIN
		a.answered(c)
	case c.Next == s.Seq:
		c.Flags |= Doubted
	}
}

// takes reports whether the stack takes a packet by its sequence number.
func (h Host) takes(s TCP, next uint32) bool {
	return int32(s.Seq-next) <= 0 || h.State == Full && int32(h.Next+h.Window-s.Seq) >= 0
}

// Out is a packet of the server's stack.
func (a Agent) Out(now time.Duration, s TCP) (Agent, Outcome) {
	c, embryonic := a.find(now)
	if c == nil {
		return a, Outcome{Act: Client, Why: []string{"out_no_flow"}}
	}
	c.Seen = tick(now)
	if s.has(wire.RST) {
		c.Flags |= ClientFIN | ServerFIN
	}
	if s.has(wire.FIN) {
		c.Flags |= ServerFIN
	}
	if s.has(wire.FIN | wire.RST) {
		c.Flags |= Owes
	}
	if s.Payload > 0 || s.has(wire.FIN|wire.RST) {
		if s.has(wire.ACK) && !s.has(wire.RST) && !embryonic {
			c.Next = s.Ack // whatever the stack did not take
		}
		a.answered(c)
	}
	if embryonic && s.has(wire.SYN) && s.Ack == c.Next {
		c.Out = s.Seq + 1
	}
	switch {
	case embryonic && !s.has(wire.SYN): // a request may answer for an earlier SYN
	case !s.has(wire.SYN) && c.repeats(s): // the LB that signalled it may be dead
	case !c.Direct: // III: WAIT + data from app; not III: WAIT + FIN
		return a, signal(c, wire.CreateStickiness, "signal_create")
	case c.Flags&Owes != 0: // III: DIRECT + FIN from app
		c.Flags &^= Owes
		return a, signal(c, wire.RemoveStickiness, "signal_remove")
	}
	return a, Outcome{Act: Client, Why: []string{"out_direct"}} // III: DIRECT + data from app
}

// repeats reports whether the server sends a segment again.
func (c *Conn) repeats(s TCP) bool {
	end := s.Seq + s.Payload
	if s.has(wire.FIN) {
		end++
	}
	if c.Flags&Spoke != 0 && int32(end-c.Out) <= 0 {
		return !s.has(wire.RST) && (s.Payload > 0 || s.has(wire.FIN))
	}
	c.Flags, c.Out = c.Flags|Spoke, end
	return false
}

func signal(c *Conn, f wire.Function, why string) Outcome {
	return Outcome{
		Act: Send, Why: []string{why},
		Route: []SID{{Node: c.LB, Function: f, Generation: c.Generation, Closed: uint8(c.Flags & (ClientFIN | ServerFIN) / ClientFIN)}},
	}
}

// Sweep removes expired entries.
func (a Agent) Sweep(now, linger, idle time.Duration) Agent {
	c := &a.Conn
	limit := idle
	switch {
	case !c.Established:
		limit = waiting
	case c.Flags&(ClientFIN|ServerFIN) == ClientFIN|ServerFIN, c.Flags&Doubted != 0:
		limit = linger
	}
	if c.age(now) > limit {
		a.arrived(c)
		a.answered(c)
		*c = Conn{}
	}
	return a
}
