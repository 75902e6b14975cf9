package proof

import (
	"slices"

	"proffer/lab/sim"
)

// The slow twin's way of a request.

func (s *slow) hop(r *flow, pair uint64, which int) int64 {
	word := sim.NewDraws(s.seed, sim.HopStream).At(r.number*sim.HopPairs + pair)
	part := word >> 32
	if which == 1 {
		part = word & 0xffffffff
	}
	return int64(s.farm.HopMin) + int64(part*uint64(s.farm.HopMax-s.farm.HopMin)>>32)
}

func (s *slow) hunts() bool { return s.lists != nil }

func (s *slow) atLB(r *flow) {
	r.opened = s.now
	if s.ask != nil {
		s.ask(r, func() { s.forward(r) })
		return
	}
	s.forward(r)
}

func (s *slow) forward(r *flow) {
	switch {
	case s.hunts():
		r.list = s.lists(r)
		r.Server = r.list[0]
	case s.enter(r):
		r.Server = s.choose(r.LB, r)
		if s.begun != nil {
			s.begun(r)
		}
	default:
		r.Server = sim.Below(r.hash, len(s.hosts))
	}
	s.assign(r)
	s.after(s.hop(r, sim.ToServer, 1), 2, func() { s.atServer(r) })
}

func (s *slow) enter(r *flow) bool {
	r.bucket = 0
	if s.begun == nil || s.farm.FlowTable == 0 {
		return true
	}
	for len(s.tables) < s.farm.LBs {
		s.tables = append(s.tables, map[int]bool{})
	}
	r.bucket = sim.Below(r.hash*sim.Golden, s.farm.FlowTable)
	if s.tables[r.LB][r.bucket] {
		r.bucket = sim.None
		return false
	}
	s.tables[r.LB][r.bucket] = true
	return true
}

func (s *slow) assign(r *flow) {
	h := s.hosts[r.Server]
	h.assigned = append(h.assigned, r)
	s.look()
}

func (s *slow) unassign(r *flow) {
	h := s.hosts[r.Server]
	h.assigned = slices.DeleteFunc(h.assigned, func(x *flow) bool { return x == r })
	s.look()
}

func (s *slow) look() {
	if s.observe != nil {
		s.observe()
	}
}

func (s *slow) atServer(r *flow) {
	r.Hops++
	if !s.hunts() {
		s.accept(r)
		return
	}
	last := r.visit == len(r.list)-1
	take, to := s.asked(r, r.Server, last)
	if take {
		s.accept(r)
		return
	}
	s.unassign(r)
	which := 0
	next := s.atServer
	pair := sim.PassedOn + uint64(r.visit)
	if last {
		r.Server, which, next = to, 1, s.accept
		r.Hops++
	} else {
		r.visit++
		r.Server = r.list[r.visit]
	}
	s.assign(r)
	s.after(s.hop(r, pair, which), 2, func() { next(r) })
}

func (s *slow) accept(r *flow) {
	h := s.hosts[r.Server]
	if h.taken >= h.Room() {
		s.unassign(r)
		s.answer(r, true)
		return
	}
	h.taken++
	if r.begun = s.now; s.accepted != nil {
		s.accepted(r)
	}
	wait := s.hop(r, sim.SYNACK, 0)
	if s.signals() {
		s.signal(r, wait)
		wait += s.hop(r, sim.SYNACK, 1)
	}
	if s.alive != nil {
		s.after(wait+s.hop(r, sim.ToData, 0)+2*r.far, 2, func() {
			if r.bucket != sim.None {
				r.alive = true
				s.alive(r)
			}
		})
	}
	s.after(wait+s.hop(r, sim.ToData, 0)+s.hop(r, sim.ToData, 1)+2*r.far, 2, func() { s.enqueue(h, &h.cpu, r) })
}

func (s *slow) signals() bool { return s.hunts() || s.report != nil }

func (s *slow) signal(r *flow, wait int64) {
	if s.report != nil {
		s.after(wait, 2, s.report(r))
	}
	if s.heard != nil {
		h := s.hosts[r.Server]
		metric, idle := h.metric(), h.taken < h.Cores
		s.after(wait, 2, func() { s.heard(r.LB, h.index, metric, idle) })
	}
}

// answer ends the flow for the client, then for the LB.
func (s *slow) answer(r *flow, refused bool) {
	s.open--
	r.Refused = refused
	took := s.now + s.hop(r, sim.ToReply, 0) + r.far - int64(r.At)
	if refused && s.farm.Penalty == 0 {
		took = -1
	} else if refused {
		took += int64(s.farm.Penalty)
	}
	r.FCT = dur(took)
	s.rows[r.number] = r.Row
	switch end := s.hop(r, sim.ToReply, 1); {
	case s.signals():
		s.signal(r, end)
		if s.begun != nil {
			s.after(end, 2, func() { s.forget(r) })
		}
	case s.begun != nil:
		s.after(s.hop(r, sim.ToReply, 0)+s.hop(r, sim.ToReply, 1)+2*r.far, 2, func() { s.forget(r) })
	}
}

func (s *slow) forget(r *flow) {
	if r.bucket == sim.None {
		return
	}
	if s.tables != nil {
		delete(s.tables[r.LB], r.bucket)
	}
	s.ended(r)
}
