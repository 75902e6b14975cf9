package sim

// The servers' steps once the data is there.

// data begins the work. From here on it counts where it lies, not as pending.
func (e *Engine) data(i int32) {
	r := &e.requests.all[i]
	switch {
	case r.phase == buried:
		e.bury(i)
		return
	case r.gone: // reset while it was on its way
		e.release(r)
		e.bury(i)
		return
	}
	r.phase = working
	e.servers[r.server].pending -= r.demand
	e.enqueue(r.server, i)
}

// enqueue puts a request before the cores, or the disk, of a station.
func (e *Engine) enqueue(at int32, i int32) {
	s := &e.stations[at]
	s.advance(e.now)
	if int32(len(s.running)) < s.limit {
		e.begin(s, i)
		e.alarms.set(at, s.settle())
	} else {
		e.wait(s, i)
	}
	if e.watch != nil {
		e.watch.Changed(at % int32(len(e.servers)))
	}
}

// begin lets a station work on a request.
func (e *Engine) begin(s *station, i int32) {
	r := &e.requests.all[i]
	if r.begun == 0 {
		r.begun = e.now
	}
	s.run(i, r.demand)
}

func (e *Engine) wait(s *station, i int32) {
	r := &e.requests.all[i]
	r.next = none
	if s.waiting == 0 {
		s.head = i
	} else {
		e.requests.all[s.tail].next = i
	}
	s.tail = i
	s.waiting++
	s.queued += r.demand
}

// complete takes the first request out of a station and lets the next one run.
func (e *Engine) complete(at int32) {
	s := &e.stations[at]
	s.advance(e.now)
	i := s.finish()
	if s.waiting > 0 {
		next := s.head
		r := &e.requests.all[next]
		s.head = r.next
		s.waiting--
		s.queued -= r.demand
		if s.waiting == 0 {
			s.queued = 0
		}
		e.begin(s, next)
	}
	e.alarms.set(at, s.settle())
	e.leave(i)
}

// leave takes a request from one stage to the next, or to its end.
func (e *Engine) leave(i int32) {
	r := &e.requests.all[i]
	r.stage++
	n := int32(len(e.servers))
	switch {
	case r.stage == 1 && e.work.Stages > 1:
		r.demand = r.io
		e.servers[r.server].disk -= r.io
		r.io = 0
		e.enqueue(r.server+n, i)
	case r.stage == 2 && e.work.Stages > 2:
		r.demand = r.second
		e.servers[r.server].pending -= r.second
		r.second = 0
		e.enqueue(r.server, i)
	default:
		e.reply(i)
	}
}
