package edgesim

import (
	"math/rand/v2"
	"time"

	"proffer/balancer"
	"proffer/weights"
)

// Run plays the traffic on the farm under the policy. The same arguments give
// the same Result, and all policies of one seed meet the same packets.
func Run(f Farm, p Policy, t Traffic, seed uint64) (Result, error) {
	if err := f.check(); err != nil {
		return Result{}, err
	}
	if err := t.check(len(f.Servers[0].Cost)); err != nil {
		return Result{}, err
	}
	e := newEngine(f, p, t, seed)
	e.loop()
	return e.result(), nil
}

type engine struct {
	farm    Farm
	traffic Traffic
	sources []*source
	cores   []core
	cost    *rand.Rand
	lbs     []*lb
	ecmp    *rand.Rand // which LB a flow comes to
	monitor *monitor   // nil: not asked
	stalls  *stalls

	agenda  int64 // ns, the first of those below
	tickAt  int64
	countAt int64 // the end of the warm-up
	seen    []int64
	tally   tally
}

func newEngine(f Farm, p Policy, t Traffic, seed uint64) *engine {
	e := &engine{farm: f, traffic: t, cost: rand.New(rand.NewPCG(seed, costStream)),
		ecmp: rand.New(rand.NewPCG(seed, ecmpStream)), countAt: int64(t.WarmUp), stalls: newStalls(t.Stalls, t.For, seed)}
	for i, c := range t.Classes {
		e.sources = append(e.sources, newSource(c, seed, i))
	}
	for i, s := range f.Servers {
		for range s.Cores {
			e.cores = append(e.cores, core{server: i, leaves: make([]int64, f.Ring)})
		}
	}
	e.seen = make([]int64, len(e.cores))
	costs := f.calibrate(seed)
	for i := range max(1, f.LBs) {
		e.lbs = append(e.lbs, newLB(p, f.Overload, costs, seed, i))
	}
	if p.Kind == Monitor {
		e.monitor = newMonitor(e, p, seed)
	}
	for i, s := range f.Servers {
		if s.Spare {
			e.each(i, func(core int) { e.all(func(lb *lb) { lb.Leave(core) }) })
		}
	}
	for _, lb := range e.lbs {
		lb.turn.weights = lb.Tick(0, balancer.Reading{Packets: lb.packets}).Weights
	}
	e.tickAt = int64(Period)
	e.plan()
	return e
}

// calibrationPackets is how many a server sends through each service when it
// starts, in turn on an idle core.
const calibrationPackets = 1000

// calibrate returns the costs that the servers report.
func (f Farm) calibrate(seed uint64) (costs weights.Costs) {
	rng := rand.New(rand.NewPCG(seed, calibrationStream))
	for _, s := range f.Servers {
		for range s.Cores {
			var row []weights.Curve
			for _, c := range s.Cost {
				sum := 0.0
				for range calibrationPackets {
					sum += f.vary(float64(c), rng)
				}
				row = append(row, weights.Fixed(sum/calibrationPackets))
			}
			costs = append(costs, row)
		}
	}
	return costs
}

func (f Farm) vary(cost float64, rng *rand.Rand) float64 {
	return cost * (1 + float64(f.Jitter*(2*rng.Float64()-1)))
}

// each does something with the cores of a server.
func (e *engine) each(server int, do func(core int)) {
	for i := range e.cores {
		if e.cores[i].server == server {
			do(i)
		}
	}
}

func (e *engine) loop() {
	end := int64(e.traffic.For)
	for {
		s, at, first := e.next()
		for e.agenda <= min(at, end) {
			e.attend()
		}
		if at > end {
			return
		}
		var p packet
		if first {
			p = s.open(e.route())
			p.born = e.stalls.seen(at)
		} else {
			p = s.pending.pop()
		}
		e.send(p, s.Service)
		s.later(p)
	}
}

// next is the source of the next packet; of two at the same instant, the first.
func (e *engine) next() (source *source, at int64, first bool) {
	at = never
	for _, s := range e.sources {
		if due, opens := s.due(); due < at {
			source, at, first = s, due, opens
		}
	}
	return source, at, first
}

// route is the LB and the core of a new flow.
func (e *engine) route() (lb uint16, core int32) {
	if len(e.lbs) > 1 {
		lb = uint16(e.ecmp.IntN(len(e.lbs)))
	}
	return lb, e.lbs[lb].next()
}

func (e *engine) send(p packet, service int) {
	e.stalls.count(p, &e.lbs[p.lb].packets[p.core][service])
	c := &e.cores[p.core]
	cold := e.farm.vary(float64(e.farm.Servers[c.server].Cost[service]), e.cost)
	leaves, ok := c.offer(p.at, int64(cold), int64(cold*(1-e.farm.Warm)))
	if ok && p.at >= int64(e.traffic.WarmUp) {
		e.tally.wait(leaves - p.at)
	}
}

// plan finds the next event that is no packet.
func (e *engine) plan() {
	e.agenda = min(e.tickAt, e.countAt)
	if e.monitor != nil {
		e.agenda = min(e.agenda, e.monitor.due())
	}
}

// attend does the events of the instant e.agenda.
func (e *engine) attend() {
	now := e.agenda
	if now == e.countAt {
		e.tally.before = [2]uint64{e.served(now), e.offered()}
		e.countAt = never
	}
	if e.monitor != nil {
		e.monitor.listen(now)
	}
	if now == e.tickAt {
		e.tick(now)
		e.tickAt += int64(Period)
	}
	e.plan()
}

func (e *engine) tick(now int64) {
	at := time.Duration(now)
	e.stalls.end(now)
	predicted, enlarge := make([]float64, len(e.cores)), false
	for _, lb := range e.lbs {
		reading := balancer.Reading{Packets: lb.packets, Others: e.others(lb)}
		if e.monitor != nil {
			reading.Measured = e.monitor.loads
		}
		d := lb.Tick(at, reading)
		lb.turn.weights = d.Weights
		enlarge = enlarge || d.Enlarge
	}
	for _, lb := range e.lbs {
		copy(lb.last, lb.Own())
		for i := range predicted {
			predicted[i] += lb.last[i].Sum(0, weights.Ages)
		}
	}
	e.tally.sample(now, predicted, e.measure(now), e.lbs[0].turn.weights)
	if enlarge {
		e.enlarge()
	}
}

// measure is how busy each core was since the last tick.
func (e *engine) measure(now int64) []float64 {
	shares := make([]float64, len(e.cores))
	for i := range e.cores {
		busy := e.cores[i].busy(now)
		shares[i] = float64(busy-e.seen[i]) / float64(Period)
		e.seen[i] = busy
	}
	return shares
}

// enlarge lets the first spare server take flows.
func (e *engine) enlarge() {
	servers := append([]Server(nil), e.farm.Servers...) // the caller's stay as they are
	for i := range servers {
		if servers[i].Spare {
			servers[i].Spare = false
			e.farm.Servers = servers
			e.each(i, func(core int) { e.all(func(lb *lb) { lb.Join(core) }) })
			return
		}
	}
}

func (e *engine) served(now int64) (sum uint64) {
	for i := range e.cores {
		sum += e.cores[i].served(now)
	}
	return sum
}

func (e *engine) offered() (sum uint64) {
	for _, lb := range e.lbs {
		sum += lb.offered()
	}
	return sum
}

// all does something with each LB.
func (e *engine) all(do func(lb *lb)) {
	for _, lb := range e.lbs {
		do(lb)
	}
}
