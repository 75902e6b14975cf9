package exhaustive_test

import (
	"proffer/proof/fsm"
	"proffer/wire"
)

// kernel is a server's TCP for one flow, as far as Linux's answers matter to the
// machines: tcp_check_req, tcp_timewait_state_process, RFC 9293 §3.10.7.
type kernel struct {
	server     fsm.Node
	deaf, full bool // no listener; its accept queue is full
	state      fsm.State
	isn        uint32 // the client's
	own        uint32 // its own first number
	next       uint32 // expected from the client
	sent       uint32 // next of its own
	acked      uint32 // of its own
	finIn      bool
	finOut     bool
	first      bool   // it closed first, and is left in TIME_WAIT
	tries      uint32 // of requests: each has numbers of its own
}

const kernelWindow = 60_000

// host is the agent's view of it.
func (k *kernel) host() fsm.Host {
	return fsm.Host{
		State: k.state, ClientISN: k.isn, ServerISN: k.own, Next: k.next, Sent: k.sent,
		Listening: !k.deaf, Backlog: k.full, Window: kernelWindow,
	}
}

// take is a segment from the client, and the answer to it, if any.
func (k *kernel) take(s fsm.TCP) (answer fsm.TCP, answers bool) {
	switch k.state {
	case fsm.Request:
		return k.takeRequest(s)
	case fsm.Full:
		return k.takeFull(s)
	case fsm.TimeWait:
		if s.Flags&(wire.SYN|wire.ACK|wire.RST) == wire.SYN && int32(s.Seq-k.next) > 0 { // TCP_TW_SYN
			k.state = fsm.NoSocket
			return k.takeNone(s)
		}
		return k.ackNow(), s.Flags&wire.RST == 0 && (s.Flags&(wire.SYN|wire.FIN) != 0 || s.Payload > 0)
	default:
		return k.takeNone(s)
	}
}

func (k *kernel) takeNone(s fsm.TCP) (answer fsm.TCP, answers bool) {
	switch {
	case s.Flags&wire.RST != 0:
		return answer, false
	case s.Flags&wire.ACK != 0:
		return fsm.TCP{Flags: wire.RST, Seq: s.Ack}, true
	case s.Flags&wire.SYN == 0:
		return answer, false
	case k.deaf:
		return fsm.TCP{Flags: wire.RST | wire.ACK, Ack: s.Seq + 1}, true
	case k.full:
		return answer, false
	}
	k.tries++
	*k = kernel{
		server: k.server, state: fsm.Request, tries: k.tries,
		isn: s.Seq, next: s.Seq + 1, own: isnOf(k.server, s.Seq) + 7*k.tries,
	}
	k.sent, k.acked = k.own+1, k.own+1
	return k.synAck(), true
}

func (k *kernel) synAck() fsm.TCP {
	return fsm.TCP{Flags: wire.SYN | wire.ACK, Seq: k.own, Ack: k.isn + 1}
}

func (k *kernel) ackNow() fsm.TCP {
	return fsm.TCP{Flags: wire.ACK, Seq: k.sent, Ack: k.next}
}

func (k *kernel) takeRequest(s fsm.TCP) (answer fsm.TCP, answers bool) {
	switch {
	case s.Flags&wire.SYN != 0 && s.Seq == k.isn:
		return k.synAck(), true
	case s.Flags&wire.RST != 0:
		if s.Seq == k.next {
			k.state = fsm.NoSocket
		}
		return answer, false
	case s.Flags&wire.ACK != 0 && s.Ack != k.own+1: // for the listener, which knows no such thing
		return fsm.TCP{Flags: wire.RST, Seq: s.Ack}, true
	case s.Flags&wire.SYN != 0:
		return k.ackNow(), true
	case s.Flags&wire.ACK == 0 || k.full:
		return answer, false
	}
	if int32(s.Seq-k.next) < 0 || s.Seq-k.next > kernelWindow {
		return k.ackNow(), true
	}
	k.state = fsm.Full
	if s.Payload == 0 && s.Flags&wire.FIN == 0 {
		return answer, false
	}
	return k.takeFull(s)
}

func (k *kernel) takeFull(s fsm.TCP) (answer fsm.TCP, answers bool) {
	switch {
	case s.Flags&wire.RST != 0:
		if s.Seq == k.next {
			k.state = fsm.NoSocket
			return answer, false
		}
		return k.ackNow(), int32(s.Seq-k.next) > 0
	case s.Flags&wire.SYN != 0:
		return k.ackNow(), true
	}
	if s.Seq == k.next && !k.finIn {
		k.next += s.Payload
		if s.Flags&wire.FIN != 0 {
			k.next++
			k.finIn = true
		}
	}
	if s.Flags&wire.ACK != 0 && s.Ack-k.acked <= k.sent-k.acked {
		k.acked = s.Ack
	}
	if k.finIn && k.finOut && k.acked == k.sent {
		k.state = fsm.NoSocket
		if k.first {
			k.state = fsm.TimeWait
		}
	}
	return k.ackNow(), s.Payload > 0 || s.Flags&wire.FIN != 0 || int32(s.Seq-k.next) < 0
}

// send is the application's: data, or the end.
func (k *kernel) send(bytes uint32, end bool) fsm.TCP {
	s := fsm.TCP{Flags: wire.ACK, Seq: k.sent, Ack: k.next, Payload: bytes}
	k.sent += bytes
	if end {
		s.Flags |= wire.FIN
		k.sent++
		k.finOut, k.first = true, !k.finIn
	}
	return s
}

// again is what its timer sends: the SYN-ACK, or what the client has not
// acknowledged.
func (k *kernel) again() (s fsm.TCP, ok bool) {
	switch {
	case k.state == fsm.Request:
		return k.synAck(), true
	case k.state != fsm.Full || k.acked == k.sent:
		return s, false
	}
	s = fsm.TCP{Flags: wire.ACK, Seq: k.acked, Ack: k.next, Payload: k.sent - k.acked}
	if k.finOut {
		s.Flags |= wire.FIN
		s.Payload--
	}
	return s, true
}

// abort is close with unread data, or a crash.
func (k *kernel) abort() fsm.TCP {
	k.state = fsm.NoSocket
	return fsm.TCP{Flags: wire.RST, Seq: k.sent}
}
