package sim

// A request's way past client, LB and servers; doc.go draws it.

// send is the client's SYN; the edge router chooses the LB.
func (e *Engine) send() {
	i := e.requests.take()
	r := &e.requests.all[i]
	*r = Request{start: e.now, number: e.sent, demand: e.service.draw(), bucket: none, phase: opening}
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
func (e *Engine) cut(r *Request) {
	r.io = e.io.draw()
	if e.work.Stages > 2 {
		r.second = float64(r.demand * (float64(e.split.at(uint64(r.number))>>11) / (1 << 53)))
		r.demand -= r.second
	}
}

// plan draws when the next request comes.
func (e *Engine) plan() {
	e.coming = never
	if int(e.sent) < e.work.Requests {
		if at, more := e.clock.next(); more {
			e.coming = max(at, e.now)
		}
	}
}

func (e *Engine) flowHash(r *Request) uint64 { return e.hash.at(2*uint64(r.number) + 1) }

func (e *Engine) atLB(i int32) {
	r := &e.requests.all[i]
	r.opened = e.now
	if e.dead != nil && e.dead[r.lb] {
		e.reroute(r)
	}
	if e.waiter == nil || !e.waiter.Ask(i, r) {
		e.forward(i)
	}
}

// forward sends the SYN to the server, or the first server, that the LB chooses.
func (e *Engine) forward(i int32) {
	r := &e.requests.all[i]
	if e.dead != nil && e.dead[r.lb] { // while it waited
		e.reroute(r)
	}
	if e.offerer != nil {
		e.list(r)
		r.server = r.list[0]
	} else if e.enter(r) {
		if r.server = e.chooser.Choose(r.lb, r); !e.in(r.server) {
			r.server = e.one(r)
		}
		if e.track != nil {
			e.track.Open(r.lb, r.server)
		}
	} else { // a flow that finds no slot is spread by hash alone (HLB §IV-A2)
		r.server = e.one(r)
	}
	e.assign(r, r.server)
	_, second := e.pair(r, toServer)
	e.hops.push(e.now+second, atServer, i)
}

// list draws the request's candidates. A leading server that is among them
// moves to the head, any other puts the last out.
func (e *Engine) list(r *Request) {
	n := e.draw(r.list[:e.choices()], e.flowHash(r))
	r.offered = uint8(n)
	if e.leader == nil {
		return
	}
	first := e.leader.Lead(r)
	if first == none || !e.in(first) {
		return
	}
	at := n - 1
	for i, s := range r.list[:n] {
		if s == first {
			at = i
		}
	}
	copy(r.list[1:at+1], r.list[:at])
	r.list[0] = first
}

// choices is how many servers a list has.
func (e *Engine) choices() int {
	if e.policy.Base == "hunt" && e.farm.Choices > 0 {
		return e.farm.Choices
	}
	return e.policy.Choices
}

// enter looks for a slot in the LB's flow table.
func (e *Engine) enter(r *Request) bool {
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

func (e *Engine) assign(r *Request, to int32) {
	s := &e.servers[to]
	s.assigned++
	s.pending += r.demand + r.second
	s.disk += r.io
	if e.watch != nil {
		e.watch.Changed(to)
	}
}

func (e *Engine) unassign(r *Request, from int32) {
	s := &e.servers[from]
	s.assigned--
	s.pending -= r.demand + r.second
	s.disk -= r.io
	if s.assigned == 0 {
		s.pending, s.disk = 0, 0
	}
	if e.watch != nil {
		e.watch.Changed(from)
	}
}

// atServer: an offer is accepted, passed on or returned, any other SYN accepted.
func (e *Engine) atServer(i int32) {
	r := &e.requests.all[i]
	r.hops++
	if e.isDown(r.server) {
		e.unanswered(i)
		return
	}
	if e.offerer == nil || e.offerer.Offer(r) {
		e.accept(i)
		return
	}
	on, back := e.pair(r, passedOn+uint64(r.visit))
	last := r.Last()
	e.result.passed[r.server]++
	to, kind, after := int32(0), atServer, on
	if last {
		to, kind, after = r.list[r.leastOf], returned, back
		r.hops++
	} else {
		r.visit++
		to = r.list[r.visit]
	}
	e.unassign(r, r.server)
	r.server = to
	e.assign(r, to)
	e.hops.push(e.now+after, kind, i)
}

// accept lets the kernel answer: with a SYN-ACK, or a RST if there is no room.
func (e *Engine) accept(i int32) {
	r := &e.requests.all[i]
	s := &e.servers[r.server]
	if e.isDown(r.server) { // an offer that returned
		e.unanswered(i)
		return
	}
	if s.taken >= s.room {
		e.refuse(i)
		return
	}
	s.taken++
	r.phase, r.arrived = accepting, e.now
	e.result.accepted[r.server]++
	if e.acceptor != nil {
		e.acceptor.Accepted(r)
	}
	ack, more := e.pair(r, synAck)
	if e.reporter != nil {
		e.reporter.Report(r)
		e.hops.push(e.now+ack, accepted, i)
	}
	if e.signals {
		ack += more
	}
	first, second := e.pair(r, toData)
	if e.life != nil {
		e.hops.push(e.now+ack+first+2*r.far, established, i)
	}
	e.hops.push(e.now+ack+first+second+2*r.far, data, i)
}

func (e *Engine) refuse(i int32) {
	r := &e.requests.all[i]
	e.unassign(r, r.server)
	if e.reporter != nil {
		e.reporter.Report(r)
	}
	back, end := e.pair(r, toReply)
	r.phase = over
	e.result.refuse(e.now+back+r.far, r)
	e.end(i, back+end+2*r.far, end)
}

func (e *Engine) reply(i int32) {
	r := &e.requests.all[i]
	r.demand, r.phase = 0, over
	e.servers[r.server].taken--
	e.unassign(r, r.server)
	if r.gone {
		e.bury(i)
		return
	}
	back, end := e.pair(r, toReply)
	e.result.complete(e.now+back+r.far, r)
	if e.measure != nil {
		e.measure.Served(r)
	}
	if e.reporter != nil {
		e.reporter.Report(r)
	}
	e.end(i, back+end+2*r.far, end)
}

// end signals to the LB that a flow is over, by the client's FIN or, if the policy
// has signals, by the server's own.
func (e *Engine) end(i int32, byClient, bySignal int64) {
	switch {
	case !e.ends:
		e.requests.give(i)
	case e.signals:
		e.hops.push(e.now+bySignal, closing, i)
	default:
		e.hops.push(e.now+byClient, closing, i)
	}
}

// forget ends the flow at its LB.
func (e *Engine) forget(i int32) {
	r := &e.requests.all[i]
	if e.reporter != nil && !r.gone {
		e.reporter.Signalled(r)
	}
	if e.track != nil && r.bucket != none {
		e.untrack(r)
	}
	e.requests.give(i)
}

// establish is the first data of a flow at its LB.
func (e *Engine) establish(r *Request) {
	if r.bucket != none && !r.gone && !r.alive {
		r.alive = true
		e.life.Established(r.lb, r.server, r.opened)
	}
}
