package sim

// A request's way past client, LB and servers; doc.go draws it.

// send is the client's SYN; the edge router chooses the LB.
func (e *engine) send() {
	i := e.requests.take()
	r := &e.requests.all[i]
	*r = request{start: e.now, number: e.sent, demand: e.service.draw(), bucket: nobody}
	r.service = r.demand
	if e.work.hasIO() {
		e.cut(r)
	}
	if e.rtt != nil {
		r.far = int64(e.rtt.draw() / 2)
	}
	r.lb = int32(below(e.hash.at(2*uint64(r.number)), e.farm.LBs))
	first, _ := e.pair(r, toServer)
	e.hops.push(e.now+first+r.far, atLB, i)
	e.sent++
	e.result.open++
	e.plan()
}

// cut splits the CPU work of a request with three stages at a random point.
func (e *engine) cut(r *request) {
	r.io = e.io.draw()
	if e.work.Stages > 2 {
		r.second = float64(r.demand * (float64(e.split.at(uint64(r.number))>>11) / (1 << 53)))
		r.demand -= r.second
	}
}

// plan draws when the next request comes.
func (e *engine) plan() {
	e.coming = never
	if int(e.sent) < e.work.Requests {
		if at, more := e.clock.next(); more {
			e.coming = max(at, e.now)
		}
	}
}

func (e *engine) flowHash(r *request) uint64 { return e.hash.at(2*uint64(r.number) + 1) }

func (e *engine) atLB(i int32) {
	r := &e.requests.all[i]
	r.opened = e.now
	if e.hunter != nil {
		e.hunter.list(r)
		r.server = r.list[0]
	} else if e.enter(r) {
		r.server = e.dispatch.choose(r.lb, r)
		if e.track != nil {
			e.track.open(r.lb, r.server)
		}
	} else { // a flow that finds no place is spread by hash alone (HLB §IV-A2)
		r.server = int32(below(e.flowHash(r), len(e.servers)))
	}
	e.assign(r, r.server)
	_, second := e.pair(r, toServer)
	e.hops.push(e.now+second, atServer, i)
}

// enter looks for a place in the LB's flow table.
func (e *engine) enter(r *request) bool {
	if e.tables == nil {
		r.bucket = 0
		return true
	}
	bucket := below(e.flowHash(r)*golden, e.farm.FlowTable)
	if e.tables[r.lb][bucket] {
		e.result.untracked++
		return false
	}
	e.tables[r.lb][bucket] = true
	r.bucket = int32(bucket)
	return true
}

func (e *engine) assign(r *request, to int32) {
	s := &e.servers[to]
	s.assigned++
	s.pending += r.demand + r.second
	s.disk += r.io
	if e.watch != nil {
		e.watch.changed(to)
	}
}

func (e *engine) unassign(r *request, from int32) {
	s := &e.servers[from]
	s.assigned--
	s.pending -= r.demand + r.second
	s.disk -= r.io
	if s.assigned == 0 {
		s.pending, s.disk = 0, 0
	}
	if e.watch != nil {
		e.watch.changed(from)
	}
}

// atServer: an offer is accepted, passed on or returned, any other SYN accepted.
func (e *engine) atServer(i int32) {
	r := &e.requests.all[i]
	r.hops++
	if e.hunter == nil || e.hunter.offer(r) {
		e.accept(i)
		return
	}
	on, back := e.pair(r, passedOn+uint64(r.visit))
	last := r.visit == r.offered-1
	to, what, after := int32(0), atServer, on
	if last {
		to, what, after = r.list[r.leastOf], returned, back
		r.hops++
	} else {
		r.visit++
		to = r.list[r.visit]
	}
	e.unassign(r, r.server)
	r.server = to
	e.assign(r, to)
	e.hops.push(e.now+after, what, i)
}

// accept lets the kernel answer: with a SYN-ACK, or a RST if there is no room.
func (e *engine) accept(i int32) {
	r := &e.requests.all[i]
	s := &e.servers[r.server]
	if s.taken >= s.room {
		e.refuse(i)
		return
	}
	s.taken++
	ack, more := e.pair(r, synAck)
	if e.hunter != nil {
		e.hunter.tell(r)
		if e.hunter.guided {
			e.hops.push(e.now+ack, accepted, i)
		}
		ack += more
	}
	first, second := e.pair(r, toData)
	e.hops.push(e.now+ack+first+second+2*r.far, data, i)
}

func (e *engine) refuse(i int32) {
	r := &e.requests.all[i]
	e.unassign(r, r.server)
	if e.hunter != nil {
		e.hunter.tell(r)
	}
	back, end := e.pair(r, toReply)
	e.result.refuse(e.now+back+r.far, r)
	e.end(i, back+end+2*r.far, end)
}

func (e *engine) reply(i int32) {
	r := &e.requests.all[i]
	r.demand = 0
	e.servers[r.server].taken--
	e.unassign(r, r.server)
	back, end := e.pair(r, toReply)
	e.result.complete(e.now+back+r.far, r)
	if e.hunter != nil {
		e.hunter.learn(r)
		e.hunter.tell(r)
	}
	e.end(i, back+end+2*r.far, end)
}

// end tells the LB that a flow is over, by the client's FIN or, if the policy
// hunts, by the server's own signal.
func (e *engine) end(i int32, byClient, bySignal int64) {
	switch {
	case !e.ends:
		e.requests.give(i)
	case e.hunter != nil:
		e.hops.push(e.now+bySignal, closing, i)
	default:
		e.hops.push(e.now+byClient, closing, i)
	}
}

// forget ends the flow at its LB.
func (e *engine) forget(i int32) {
	r := &e.requests.all[i]
	if e.hunter != nil {
		e.hunter.heard(i)
	} else if r.bucket != nobody {
		if e.tables != nil {
			e.tables[r.lb][r.bucket] = false
		}
		if e.track != nil {
			e.track.close(r.lb, r.server, r.opened)
		}
	}
	e.requests.give(i)
}
