package sim

// The servers' steps once the data is there.

// data begins the work. From here on it counts where it lies, not as pending.
func (e *Engine) data(i int32) {
	r := &e.Requests.All[i]
	switch {
	case r.Phase == buried:
		e.bury(i)
		return
	case r.gone: // reset while it was on its way
		e.release(r)
		e.bury(i)
		return
	}
	r.Phase = working
	e.Servers[r.Server].Pending -= r.Demand
	e.enqueue(r.Server, i)
}

// enqueue puts a request before the cores, or the disk, of a station.
func (e *Engine) enqueue(at int32, i int32) {
	s := &e.Stations[at]
	s.Advance(e.Instant)
	if int32(len(s.Running)) < s.limit {
		e.begin(s, i)
		e.alarms.Set(at, s.settle())
	} else {
		e.wait(s, i)
	}
	if e.watch != nil {
		e.watch.Changed(at % int32(len(e.Servers)))
	}
}

// begin lets a station work on a request.
func (e *Engine) begin(s *Station, i int32) {
	r := &e.Requests.All[i]
	if r.Begun == 0 {
		r.Begun = e.Instant
	}
	s.run(i, r.Demand)
}

func (e *Engine) wait(s *Station, i int32) {
	r := &e.Requests.All[i]
	r.Next = None
	if s.Waiting == 0 {
		s.Head = i
	} else {
		e.Requests.All[s.tail].Next = i
	}
	s.tail = i
	s.Waiting++
	s.queued += r.Demand
}

// complete takes the first request out of a station and lets the next one run.
func (e *Engine) complete(at int32) {
	s := &e.Stations[at]
	s.Advance(e.Instant)
	i := s.finish()
	if s.Waiting > 0 {
		next := s.Head
		r := &e.Requests.All[next]
		s.Head = r.Next
		s.Waiting--
		s.queued -= r.Demand
		if s.Waiting == 0 {
			s.queued = 0
		}
		e.begin(s, next)
	}
	e.alarms.Set(at, s.settle())
	e.leave(i)
}

// leave takes a request from one stage to the next, or to its end.
func (e *Engine) leave(i int32) {
	r := &e.Requests.All[i]
	r.stage++
	n := int32(len(e.Servers))
	switch {
	case r.stage == 1 && e.Work.Stages > 1:
		r.Demand = r.io
		e.Servers[r.Server].Disk -= r.io
		r.io = 0
		e.enqueue(r.Server+n, i)
	case r.stage == 2 && e.Work.Stages > 2:
		r.Demand = r.Second
		e.Servers[r.Server].Pending -= r.Second
		r.Second = 0
		e.enqueue(r.Server, i)
	default:
		e.reply(i)
	}
}
