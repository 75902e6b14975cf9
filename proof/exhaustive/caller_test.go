package exhaustive_test

import (
	"fmt"

	"proffer/proof/fsm"
	"proffer/wire"
)

// caller is the client's TCP, by RFC 9293 §3.10.7 as far as a farm can tell.
type caller struct {
	state     callerState
	isn       uint32
	next, una uint32 // of its own numbers: to send, not acknowledged
	peer      uint32 // first number of the server
	rcv       uint32 // expected from the server
	out, in   bool   // FINs
}

type callerState int

const (
	callerIdle callerState = iota
	callerOpening
	callerLive
	callerOver  // both sides closed
	callerWiped // by a RST
)

// says sends a segment of the client.
func (n *smallFarm) says(s fsm.TCP) {
	n.note("client says %s", tcpText(s))
	n.launch(tcpPacket(s, true).Frame(), 0)
}

func tcpText(s fsm.TCP) string {
	return fmt.Sprintf("flags %#02x seq %d ack %d len %d", s.Flags, s.Seq, s.Ack, s.Payload)
}

// toClient is RFC 9293 §3.10.7, as far as the farm can tell.
func (n *smallFarm) toClient(s fsm.TCP) {
	c := &n.client
	n.note("client gets %s", tcpText(s))
	switch {
	case c.state == callerOpening:
		n.toOpening(s)
	case c.state == callerLive && s.Flags&wire.RST != 0:
		if s.Seq == c.rcv {
			for i := range n.servers {
				if n.ours(&n.servers[i].kernel) {
					n.fail("the client's live connection with s%d was reset", i)
				}
			}
			c.state = callerWiped
		}
	case c.state == callerLive:
		n.toLive(s)
	case s.Flags&wire.RST != 0:
	case c.state == callerOver: // or TIME_WAIT
		if s.Flags&(wire.SYN|wire.FIN) != 0 || s.Payload > 0 {
			n.says(fsm.TCP{Flags: wire.ACK, Seq: c.next, Ack: c.rcv})
		}
	case s.Flags&wire.ACK != 0:
		n.says(fsm.TCP{Flags: wire.RST, Seq: s.Ack})
	}
}

func (n *smallFarm) toOpening(s fsm.TCP) {
	c := &n.client
	switch {
	case s.Flags&wire.ACK != 0 && s.Ack != c.isn+1:
		if s.Flags&wire.RST == 0 {
			n.says(fsm.TCP{Flags: wire.RST, Seq: s.Ack})
		}
	case s.Flags&(wire.RST|wire.ACK) == wire.RST|wire.ACK:
		c.state = callerWiped
		if !n.full && n.deaf != [2]bool{true, true} {
			n.fail("the client was refused, though a server listens")
		}
	case s.Flags&(wire.SYN|wire.ACK) == wire.SYN|wire.ACK:
		c.state, c.una, c.peer, c.rcv = callerLive, c.isn+1, s.Seq, s.Seq+1
		n.says(fsm.TCP{Flags: wire.ACK, Seq: c.next, Ack: c.rcv})
	}
}

func (n *smallFarm) toLive(s fsm.TCP) {
	c := &n.client
	if s.Flags&wire.SYN != 0 { // a challenge ACK
		n.says(fsm.TCP{Flags: wire.ACK, Seq: c.next, Ack: c.rcv})
		return
	}
	if s.Seq-c.rcv == 0 && !c.in {
		c.rcv += s.Payload
		if s.Flags&wire.FIN != 0 {
			c.rcv++
			c.in = true
		}
	}
	if d := s.Ack - c.una; s.Flags&wire.ACK != 0 && d <= c.next-c.una {
		c.una = s.Ack
	}
	if s.Payload > 0 || s.Flags&wire.FIN != 0 || int32(s.Seq-c.rcv) < 0 {
		n.says(fsm.TCP{Flags: wire.ACK, Seq: c.next, Ack: c.rcv})
	}
	if c.in && c.out && c.una == c.next {
		c.state = callerOver
	}
}

// open begins a connection on the same ports.
func (n *smallFarm) open() {
	c := &n.client
	n.turn++
	isn := n.turn * 100_003 // each its own; the ports' later uses have higher numbers
	*c = caller{state: callerOpening, isn: isn, next: isn + 1, una: isn}
	n.says(fsm.TCP{Flags: wire.SYN, Seq: isn})
}

// again is the frame that the client's timer sends.
func (n *smallFarm) again() {
	c := &n.client
	switch {
	case c.state == callerOpening:
		n.says(fsm.TCP{Flags: wire.SYN, Seq: c.isn})
	case c.state == callerLive && c.una != c.next:
		s := fsm.TCP{Flags: wire.ACK, Seq: c.una, Ack: c.rcv, Payload: c.next - c.una}
		if c.out {
			s.Flags |= wire.FIN
			s.Payload--
		}
		n.says(s)
	}
}

func (n *smallFarm) clientData() {
	c := &n.client
	if c.state == callerLive && !c.out && c.next-c.isn < 100 {
		s := fsm.TCP{Flags: wire.ACK | wire.PSH, Seq: c.next, Ack: c.rcv, Payload: 10}
		c.next += 10
		n.says(s)
	}
}

func (n *smallFarm) clientClose() {
	c := &n.client
	if c.state == callerLive && !c.out {
		s := fsm.TCP{Flags: wire.FIN | wire.ACK, Seq: c.next, Ack: c.rcv}
		c.next++
		c.out = true
		n.says(s)
	}
}
