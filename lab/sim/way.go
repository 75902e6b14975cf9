package sim

// A request's way past client, LB and servers; doc.go draws it.

// send is the client's SYN; the edge router chooses the LB.
func (e *Engine) send() {
	i := e.Requests.take()
	r := &e.Requests.All[i]
	*r = Request{start: e.Instant, Number: e.Sent, Demand: e.service.Draw(), bucket: None, Phase: opening}
	r.Service = r.Demand
	if e.Work.HasIO() {
		e.cut(r)
	}
	if e.rtt != nil {
		r.far = int64(e.rtt.Draw() / 2)
	}
	r.LB = int32(Below(e.hash.At(2*uint64(r.Number)), e.Farm.LBs))
	first, _ := e.pair(r, ToServer)
	e.Hops.Push(e.Instant+first+r.far, atLB, i)
	e.Sent++
	e.Result.Open++
	e.plan()
}

// cut splits the CPU work of a request with three stages at a random point.
func (e *Engine) cut(r *Request) {
	r.io = e.io.Draw()
	if e.Work.Stages > 2 {
		r.Second = float64(r.Demand * (float64(e.split.At(uint64(r.Number))>>11) / (1 << 53)))
		r.Demand -= r.Second
	}
}

// plan draws when the next request comes.
func (e *Engine) plan() {
	e.coming = Never
	if int(e.Sent) < e.Work.Requests {
		if at, more := e.clock.Next(); more {
			e.coming = max(at, e.Instant)
		}
	}
}

func (e *Engine) Hash(r *Request) uint64 { return e.hash.At(2*uint64(r.Number) + 1) }

func (e *Engine) atLB(i int32) {
	r := &e.Requests.All[i]
	r.Opened = e.Instant
	if e.dead != nil && e.dead[r.LB] {
		e.reroute(r)
	}
	if e.waiter == nil || !e.waiter.Ask(i, r) {
		e.forward(i)
	}
}

// forward sends the SYN to the server, or the first server, that the LB chooses.
func (e *Engine) forward(i int32) {
	r := &e.Requests.All[i]
	if e.dead != nil && e.dead[r.LB] { // while it waited
		e.reroute(r)
	}
	if e.Offerer != nil {
		e.List(r)
		r.Server = r.List[0]
	} else if e.enter(r) {
		if r.Server = e.Chooser.Choose(r.LB, r); !e.In(r.Server) {
			r.Server = e.One(r)
		}
		if e.Track != nil {
			e.Track.Open(r.LB, r.Server)
		}
	} else { // a flow that finds no slot is spread by hash alone (HLB §IV-A2)
		r.Server = e.One(r)
	}
	e.assign(r, r.Server)
	_, second := e.pair(r, ToServer)
	e.Hops.Push(e.Instant+second, atServer, i)
}

// List draws the request's candidates. A leading server that is among them
// moves to the head, any other puts the last out.
func (e *Engine) List(r *Request) {
	n := e.draw(r.List[:e.choices()], e.Hash(r))
	r.Offered = uint8(n)
	if e.leader == nil {
		return
	}
	first := e.leader.Lead(r)
	if first == None || !e.In(first) {
		return
	}
	at := n - 1
	for i, s := range r.List[:n] {
		if s == first {
			at = i
		}
	}
	copy(r.List[1:at+1], r.List[:at])
	r.List[0] = first
}

// choices is how many servers a list has.
func (e *Engine) choices() int {
	if e.Policy.Base == "hunt" && e.Farm.Choices > 0 {
		return e.Farm.Choices
	}
	return e.Policy.Choices
}

// enter looks for a slot in the LB's flow table.
func (e *Engine) enter(r *Request) bool {
	if e.tables == nil {
		r.bucket = 0
		return true
	}
	bucket := Below(e.Hash(r)*Golden, e.Farm.FlowTable)
	if e.tables[r.LB][bucket] {
		e.Result.untracked++
		return false
	}
	e.tables[r.LB][bucket] = true
	r.bucket = int32(bucket)
	return true
}

func (e *Engine) assign(r *Request, to int32) {
	s := &e.Servers[to]
	s.Assigned++
	s.Pending += r.Demand + r.Second
	s.Disk += r.io
	if e.watch != nil {
		e.watch.Changed(to)
	}
}

func (e *Engine) unassign(r *Request, from int32) {
	s := &e.Servers[from]
	s.Assigned--
	s.Pending -= r.Demand + r.Second
	s.Disk -= r.io
	if s.Assigned == 0 {
		s.Pending, s.Disk = 0, 0
	}
	if e.watch != nil {
		e.watch.Changed(from)
	}
}

// atServer: an offer is accepted, passed on or returned, any other SYN accepted.
func (e *Engine) atServer(i int32) {
	r := &e.Requests.All[i]
	r.hops++
	if e.IsDown(r.Server) {
		e.unanswered(i)
		return
	}
	if e.Offerer == nil || e.Offerer.Offer(r) {
		e.accept(i)
		return
	}
	on, back := e.pair(r, PassedOn+uint64(r.Visit))
	last := r.Last()
	e.Result.passed[r.Server]++
	to, kind, after := int32(0), atServer, on
	if last {
		to, kind, after = r.List[r.LeastOf], returned, back
		r.hops++
	} else {
		r.Visit++
		to = r.List[r.Visit]
	}
	e.unassign(r, r.Server)
	r.Server = to
	e.assign(r, to)
	e.Hops.Push(e.Instant+after, kind, i)
}

// accept lets the kernel answer: with a SYN-ACK, or a RST if there is no room.
func (e *Engine) accept(i int32) {
	r := &e.Requests.All[i]
	s := &e.Servers[r.Server]
	if e.IsDown(r.Server) { // an offer that returned
		e.unanswered(i)
		return
	}
	if s.Taken >= s.Room {
		e.refuse(i)
		return
	}
	s.Taken++
	r.Phase, r.Arrived = accepting, e.Instant
	e.Result.accepted[r.Server]++
	if e.acceptor != nil {
		e.acceptor.Accepted(r)
	}
	ack, more := e.pair(r, SYNACK)
	if e.reporter != nil {
		e.reporter.Report(r)
		e.Hops.Push(e.Instant+ack, accepted, i)
	}
	if e.signals {
		ack += more
	}
	first, second := e.pair(r, ToData)
	if e.Life != nil {
		e.Hops.Push(e.Instant+ack+first+2*r.far, established, i)
	}
	e.Hops.Push(e.Instant+ack+first+second+2*r.far, Data, i)
}

func (e *Engine) refuse(i int32) {
	r := &e.Requests.All[i]
	e.unassign(r, r.Server)
	if e.reporter != nil {
		e.reporter.Report(r)
	}
	back, end := e.pair(r, ToReply)
	r.Phase = Over
	e.Result.refuse(e.Instant+back+r.far, r)
	e.end(i, back+end+2*r.far, end)
}

func (e *Engine) reply(i int32) {
	r := &e.Requests.All[i]
	r.Demand, r.Phase = 0, Over
	e.Servers[r.Server].Taken--
	e.unassign(r, r.Server)
	if r.gone {
		e.bury(i)
		return
	}
	back, end := e.pair(r, ToReply)
	e.Result.complete(e.Instant+back+r.far, r)
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
	case !e.Ends:
		e.Requests.give(i)
	case e.signals:
		e.Hops.Push(e.Instant+bySignal, closing, i)
	default:
		e.Hops.Push(e.Instant+byClient, closing, i)
	}
}

// forget ends the flow at its LB.
func (e *Engine) forget(i int32) {
	r := &e.Requests.All[i]
	if e.reporter != nil && !r.gone {
		e.reporter.Signalled(r)
	}
	if e.Track != nil && r.bucket != None {
		e.untrack(r)
	}
	e.Requests.give(i)
}

// establish is the first data of a flow at its LB.
func (e *Engine) establish(r *Request) {
	if r.bucket != None && !r.gone && !r.alive {
		r.alive = true
		e.Life.Established(r.LB, r.Server, r.Opened)
	}
}
