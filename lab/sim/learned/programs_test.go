package learned

import (
	"cmp"
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/control"
	"proffer/dataplane"
	"proffer/dataplane/objects"
	"proffer/lab/sim"
	"proffer/policy"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// programs lets the LB's programs choose in a policy's place: each of the farm's LBs is loaded by
// itself, and gets the packets of its flows in virtual time. The policy sees the same flows and
// chooses beside them. The programs' choice is the one that counts, so that both go on from the same
// state.
type programs struct {
	*sim.Engine
	t     *testing.T
	own   sim.Chooser
	track sim.Tracker
	life  sim.Establisher // or nil
	count *counting
	draws *learned // or nil
	lbs   []programLB
	flows map[openedAt][]uint32 // the numbers of the flows that were opened there and then
	talks *talks                // or nil: a flow has one packet of data

	turn    int
	changed [][]int // of each LB and server: the turn in which its flows changed last

	chosen, same, tied int
	owed               int // choices of a server that was owed a flow
}

// programLB is an LB, as its daemon has it.
type programLB struct {
	*rig.LB
	svc     *topo.Service
	learner *control.Learner
	words   [][]uint64 // of each server: those that the policy chose the places of samples by
}

// order is that of the servers' turns.
func (r *programLB) order(t *testing.T) (servers []int) {
	t.Helper()
	var own objects.LBTally
	for number := uint32(1); own.Key != objects.ServiceKey(r.svc.VIP); number++ {
		if err := r.Objects().Tallies.Lookup(number, &own); err != nil {
			t.Fatal(err)
		}
	}
	for seat := range own.Seats {
		servers = append(servers, int(seat))
	}
	slices.SortFunc(servers, func(a, b int) int { return cmp.Compare(turnOf(own.Leaf[a]), turnOf(own.Leaf[b])) })
	return servers
}

// turnOf is the turn in a leaf (bpf/lb/occupancy.h).
func turnOf(leaf uint64) uint64 {
	const shift, most = 10, 1<<16 - 1
	return leaf >> shift & most
}

type openedAt struct {
	lb, server int32
	at         int64
}

const portOfPrograms = 81

// newPrograms puts programs in the place of the engine's policy.
func newPrograms(t *testing.T, e *sim.Engine, d topo.Dispatch) *programs {
	t.Helper()
	p := &programs{Engine: e, t: t, own: e.Chooser, track: e.Track, life: e.Life, flows: map[openedAt][]uint32{}}
	p.draws, p.count = learnedOf(e.Chooser)
	rig.Enter(t)
	for i := range e.Farm.LBs {
		svc := rig.Service(portOfPrograms, d, 1, len(e.Servers))
		for i := range svc.Servers {
			svc.Servers[i].Weight = e.Farm.Servers[i].Cores
		}
		if d.Learns() {
			svc.LearnEvery = e.Policy.Period(StepLength)
		}
		cfg := rig.LBConfig(svc)
		cfg.Flows = topo.FlowTable{Entries: 1 << 17, Idle: time.Minute, Linger: 10 * time.Second}
		lb := programLB{LB: rig.LoadLB(t, rig.Hits{}, cfg), words: make([][]uint64, len(e.Servers))}
		lb.svc = &lb.Cfg.Services[0]
		lb.learner = control.NewLearner(lb.svc, nil)
		order := lb.order(t)
		if p.draws != nil {
			p.count.scores[i].InTurn(order)
		}
		p.lbs = append(p.lbs, lb)
		p.changed = append(p.changed, make([]int, len(e.Servers)))
		for turn, server := range order {
			p.changed[i][server] = turn - len(order)
		}
	}
	e.Chooser, e.Track, e.Life, e.Ends = p, p, p, true
	p.learn()
	p.begin(readEvery, readEvery, p.learn)
	p.begin(sweepEvery, sweepEvery, p.sweep)
	return p
}

// learnedOf finds the parts of a policy that counts.
func learnedOf(own sim.Chooser) (*learned, *counting) {
	switch own := own.(type) {
	case *Watchful:
		return learnedOf(own.learner)
	case literal:
		return learnedOf(own.learner)
	case *ages:
		return own.learned, own.counting
	case *learned:
		return own, own.counting
	}
	return nil, own.(*counting)
}

// How often a daemon reads its tallies, and sweeps the whole table.
const (
	readEvery  = int64(100 * time.Millisecond)
	sweepEvery = int64(5 * time.Second)
)

// begin runs a job again and again, the first time at an instant.
func (p *programs) begin(at, every int64, job func()) {
	p.Every(time.Duration(every), job)
	p.Hops.Push(at, sim.Ticking, int32(len(p.Timers)-1))
}

// clock is the LBs' time now.
func (p *programs) clock() time.Duration { return rig.Start + time.Duration(p.Instant) }

// packet passes a packet of a flow through its LB, and returns the server that it goes to.
func (p *programs) packet(lb int32, flow uint32, flags byte, payload string) int32 {
	packet := rig.Inward(portOfPrograms, flags)
	client := rig.ClientAddr.As16()
	client[14], client[15] = byte(flow>>22), byte(flow>>14)
	packet.Src = netip.AddrPortFrom(netip.AddrFrom16(client), 0x4000|uint16(flow&0x3fff))
	packet.Payload = []byte(payload)
	r := &p.lbs[lb]
	r.At(p.t, p.clock())
	out := r.Run(p.t, packet.Frame())
	if out.Action != rig.XDPTX {
		p.t.Fatalf("flow %d at LB %d: action %d for a packet with flags %#x", flow, lb, out.Action, flags)
	}
	const locator = 14 + 24 // in the outer header's destination
	return int32(out.Frame[locator+7])
}

// steady is packet of a flow that has its server.
func (p *programs) steady(lb, server int32, flow uint32, flags byte, payload string) {
	if at := p.packet(lb, flow, flags, payload); at != server {
		p.t.Fatalf("flow %d at LB %d: a packet with flags %#x reaches server %d, and the flow is at %d", flow, lb, flags, at, server)
	}
}

// Choose is the programs' choice.
func (p *programs) Choose(lb int32, r *sim.Request) int32 {
	want := p.own.Choose(lb, r)
	got := p.packet(lb, r.Number, wire.SYN, "")
	p.chosen++
	if p.count.scores[lb].Key(got) == owedScore {
		p.owed++
	}
	switch {
	case got == want:
		p.same++
	case p.score(lb, got) == p.score(lb, want):
		p.tied++
		p.wantTurn(lb, got)
	case testing.Verbose():
		p.t.Logf("flow %d at LB %d after %v: server %d of score %d, the policy's is %d of score %d (%g and %g)", r.Number, lb, p.Now(),
			got, p.score(lb, got), want, p.score(lb, want), p.count.score(lb, got), p.count.score(lb, want))
	}
	at := openedAt{lb, got, p.Instant}
	p.flows[at] = append(p.flows[at], r.Number)
	return got
}

// score is a server's in the data plane's integers.
func (p *programs) score(lb, server int32) uint64 {
	if p.count.scores[lb].Key(server) == owedScore {
		return 0
	}
	inverse := uint32(policy.InverseOne)
	if in := p.lbs[lb].learner.Spread().Inverses; in != nil {
		inverse = in[server]
	}
	return policy.Score(uint64(p.count.flows[lb][server]), inverse)
}

// turnsBegin is when the programs may begin the turns of their servers again.
const turnsBegin = 10 * time.Second

// wantTurn: of the servers with the same score, the one is chosen with flows that changed longest ago.
func (p *programs) wantTurn(lb, got int32) {
	if p.Now() > turnsBegin {
		return
	}
	for s, turn := range p.changed[lb] {
		first := turn < p.changed[lb][got] || turn == p.changed[lb][got] && s < int(got)
		if first && p.score(lb, int32(s)) == p.score(lb, got) {
			p.t.Errorf("after %v LB %d chooses server %d, and it is the turn of server %d", p.Now(), lb, got, s)
		}
	}
}

// follow lets the policy see an event of a flow at a server, and keeps the word of a sample that it
// takes.
func (p *programs) follow(lb, server int32, event func()) {
	drawn, flows := uint64(0), p.count.flows[lb][server]
	if p.draws != nil {
		drawn = p.draws.drawn
	}
	event()
	if p.count.flows[lb][server] != flows {
		p.turn++
		p.changed[lb][server] = p.turn
	}
	if p.draws != nil && p.draws.drawn != drawn {
		p.keep(lb, server, p.draws.random.At(p.draws.drawn))
	}
}

// keep keeps the word of a sample.
func (p *programs) keep(lb, server int32, word uint64) {
	words := &p.lbs[lb].words[server]
	*words = append(*words, word)
}

func (p *programs) Open(lb, server int32) {
	p.follow(lb, server, func() { p.track.Open(lb, server) })
}

// Established is a flow's first data.
func (p *programs) Established(lb, server int32, opened int64) {
	flow := p.flows[openedAt{lb, server, opened}][0]
	p.steady(lb, server, flow, wire.ACK, "data")
	if p.life != nil {
		p.follow(lb, server, func() { p.life.Established(lb, server, opened) })
	}
	if p.talks != nil {
		p.talks.begin(flow, openedAt{lb, server, opened})
	}
}

// Finished is followed by Close.
func (p *programs) Finished(lb, server int32, opened int64) {
	if p.life != nil {
		p.follow(lb, server, func() { p.life.Finished(lb, server, p.measured(opened)) })
	}
}

// Close is a flow's FIN.
func (p *programs) Close(lb, server int32, opened int64) {
	at := openedAt{lb, server, opened}
	flow := p.flows[at][0]
	if p.flows[at] = p.flows[at][1:]; len(p.flows[at]) == 0 {
		delete(p.flows, at)
	}
	p.steady(lb, server, flow, wire.FIN|wire.ACK, "")
	if p.talks != nil {
		p.talks.end(flow)
	} else {
		opened = p.measured(opened)
	}
	p.follow(lb, server, func() { p.track.Close(lb, server, opened) })
}

// age is a flow's as its LB measures it, in dates of 2^22 ns that are never 0; measured is when it began
// by that.
func (p *programs) age(opened int64) int64 {
	date := func(at int64) uint16 { return max(1, uint16((int64(rig.Start)+at)>>objects.DateShift)) }
	return max(int64(date(p.Instant)-date(opened))<<objects.DateShift, int64(time.Millisecond))
}

func (p *programs) measured(opened int64) int64 { return p.Instant - p.age(opened) }

// learn is a turn of the LBs' daemons, with the policy's words for its samples.
func (p *programs) learn() {
	for i := range p.lbs {
		r := &p.lbs[i]
		seats, err := r.Seats(r.svc)
		if err != nil {
			p.t.Fatal(err)
		}
		var words []uint64
		for s := range seats {
			p.wantSeat(i, s, &seats[s])
			if got, want := len(seats[s].Durations), len(r.words[s]); got != want && p.draws != nil {
				p.t.Fatalf("after %v LB %d has %d samples of server %d, the policy %d", p.Now(), i, got, s, want)
			}
			words = append(words, r.words[s]...)
			r.words[s] = r.words[s][:0]
		}
		next := func() (word uint64) {
			if p.draws != nil {
				word, words = words[0], words[1:]
			}
			return word
		}
		r.learner.Observe(p.Now(), seats, next)
		if r.learner.Due(p.Now()) {
			if err := r.Spread(r.svc, r.learner.Step(p.Now())); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

func (p *programs) sweep() {
	for i := range p.lbs {
		p.lbs[i].At(p.t, p.clock())
		if _, err := p.lbs[i].Sweep(); err != nil {
			p.t.Fatal(err)
		}
	}
}

// wantSeat: an LB counts the flows that the policy counts.
func (p *programs) wantSeat(lb, server int, seat *dataplane.Seat) {
	got := seat.Established
	if p.lbs[lb].svc.Dispatch.Row().Counting == topo.AllCounting {
		got += seat.Embryonic
	}
	if want := uint32(p.count.flows[lb][server]); got != want {
		p.t.Fatalf("after %v LB %d counts %d flows at server %d, the policy %d", p.Now(), lb, got, server, want)
	}
}
