package edge

import (
	"math/rand/v2"
	"slices"
	"time"

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

// weigher is a weigher with servers that come and go; a core is a server to it.
type weigher interface {
	weights.Weigher
	Join(core int)
	Leave(core int)
}

func newWeigher(p Policy, cores int) weigher {
	if p.Kind == Static {
		return weights.NewStatic(slices.Repeat([]float64{1}, cores))
	}
	return weights.NewPID(cores, p.PID)
}

type engine struct {
	farm    Farm
	traffic Traffic
	sources []*source
	cores   []core
	cost    *rand.Rand
	turn    *turn
	packets [][]uint64 // by core and service, as the LB counts them

	meter   *weights.Meter
	monitor *monitor // nil: not asked
	weigher weigher

	agenda  int64 // ns, the first of those below
	tickAt  int64
	countAt int64 // the end of the warm-up
	seen    []int64
	tally   tally
}

func newEngine(f Farm, p Policy, t Traffic, seed uint64) *engine {
	e := &engine{farm: f, traffic: t, cost: rand.New(rand.NewPCG(seed, costStream)), countAt: int64(t.WarmUp)}
	for i, c := range t.Classes {
		e.sources = append(e.sources, newSource(c, seed, i))
	}
	for i, s := range f.Servers {
		for range s.Cores {
			e.cores = append(e.cores, core{server: i, leaves: make([]int64, f.Ring)})
			e.packets = append(e.packets, make([]uint64, len(s.Cost)))
		}
	}
	e.seen = make([]int64, len(e.cores))
	e.meter = weights.NewMeter(f.calibrate(seed))
	e.weigher = newWeigher(p, len(e.cores))
	if p.Kind == Monitor {
		e.monitor = newMonitor(e, p, seed)
	}
	for i, s := range f.Servers {
		if s.Spare {
			e.each(i, e.weigher.Leave)
		}
	}
	e.turn = newTurn(e.weigher.Weights(0))
	e.tickAt = int64(Period)
	e.plan()
	return e
}

// calibrationPackets is how many a server sends through each service when it
// starts, one after the other on an idle core.
const calibrationPackets = 1000

// calibrate returns the costs that the servers report.
func (f Farm) calibrate(seed uint64) (costs weights.Costs) {
	rng := rand.New(rand.NewPCG(seed, calibrationStream))
	for _, s := range f.Servers {
		for range s.Cores {
			var row []float64
			for _, c := range s.Cost {
				sum := 0.0
				for range calibrationPackets {
					sum += f.vary(float64(c), rng)
				}
				row = append(row, sum/calibrationPackets)
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
			p = s.open(int32(e.turn.next()))
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

func (e *engine) send(p packet, service int) {
	e.packets[p.core][service]++
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
	predicted := e.meter.Loads(at, e.packets)
	observed := predicted
	if e.monitor != nil {
		observed = e.monitor.loads
	}
	for i, load := range observed {
		e.weigher.Observe(at, weights.Sample{Server: i, Value: load})
	}
	e.tally.sample(now, predicted, e.measure(now), e.weigher.Weights(at))
	if e.farm.Overload > 0 && e.average(predicted) > e.farm.Overload {
		e.enlarge()
	}
	e.turn.weights = e.weigher.Weights(at)
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

// average of the members' loads.
func (e *engine) average(loads []float64) float64 {
	sum, n := 0.0, 0
	for i, load := range loads {
		if !e.farm.Servers[e.cores[i].server].Spare {
			sum += load
			n++
		}
	}
	return sum / float64(n)
}

// enlarge lets the first spare server take flows.
func (e *engine) enlarge() {
	servers := append([]Server(nil), e.farm.Servers...) // the caller's stay as they are
	for i := range servers {
		if servers[i].Spare {
			servers[i].Spare = false
			e.farm.Servers = servers
			e.each(i, e.weigher.Join)
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
	for _, services := range e.packets {
		for _, n := range services {
			sum += n
		}
	}
	return sum
}
