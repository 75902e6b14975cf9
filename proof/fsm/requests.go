package fsm

import "proffer/wire"

// asked: payload or a FIN that was not there before went inward.
func (a *Agent) asked(c *Conn, s TCP, embryonic bool) {
	end := s.Seq + s.Payload
	if s.has(wire.SYN) {
		end++
	}
	fresh := s.Payload > 0 && int32(end-c.Next) > 0
	if s.has(wire.FIN) {
		end++
	}
	if s.Payload == 0 && !s.has(wire.FIN) || int32(end-c.Next) <= 0 {
		return
	}
	if s.has(wire.FIN) {
		c.Flags |= ClientFIN
	}
	if embryonic {
		return
	}
	if fresh || int32(s.Seq-c.Next) <= 0 {
		c.Next = end
	}
	if fresh && c.Flags&Asking == 0 {
		c.Flags |= Asking
		a.Asking++
	}
}

// answered: payload went outward, or the connection ended.
func (a *Agent) answered(c *Conn) {
	if c.Flags&Asking != 0 {
		c.Flags &^= Asking
		a.Asking--
	}
}

// arrived: an accepted connection is there, or never will be.
func (a *Agent) arrived(c *Conn) {
	if c.Flags&Pending == 0 {
		return
	}
	c.Flags &^= Pending
	if e := &a.Expected[c.Epoch%8]; e.Epoch == c.Epoch && e.Count > 0 {
		e.Count--
	}
}
