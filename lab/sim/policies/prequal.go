package policies

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"proffer/lab/sim"
)

var _ = sim.Register(sim.Family{
	Name: "prequal", Sees: sim.Reports,
	Names: []sim.Spelling{
		{Name: "prequal", Means: "Prequal (NSDI 2024): 3 asynchronous probes a request, hot servers by requests in flight, cold ones by latency", Drawn: ""},
		{Name: "prequal:inflight", Means: "the same by requests in flight alone", Drawn: ""},
		{Name: "prequal:perfect", Means: "the same with servers that know their latency: mean service × queue factor", Drawn: ""},
		{Name: "prequal:sync", Means: "the same with 5 probes that the request waits for; also prequal:sync:inflight, :perfect", Drawn: ""},
	},
	Parse: parseProbing,
	New:   func(e *sim.Engine, p sim.Policy) any { return newPrequal(e, p.Settings.(Probing)) },
})

// Probing are the settings of prequal.
type Probing struct {
	Latency latencyKind
	Sync    bool
}

// latencyKind is the server's answer about latency.
type latencyKind uint8

const (
	estimated latencyKind = iota // the median of those of about as many requests in flight
	Unused                       // none
	Perfect                      // mean service × queue factor
)

func parseProbing(p *sim.Policy, options string) error {
	s := Probing{}
	for o := range strings.SplitSeq(options, ":") {
		switch {
		case !p.Refined():
		case o == "inflight":
			s.Latency = Unused
		case o == "perfect":
			s.Latency = Perfect
		case o == "sync":
			s.Sync = true
		default:
			return fmt.Errorf("%q: want inflight, perfect or sync", o)
		}
	}
	p.Settings = s
	return nil
}

// The parameters of the paper, and of its experiments.
const (
	ProbesAsync = 3                  // a request
	ProbesSync  = 5                  // a request, which waits for all but the last
	PoolSize    = 16                 // answers of an LB
	poolAge     = int64(time.Second) // of an answer, at most
	PoolRemove  = 1                  // answers that are removed a request
	PoolDelta   = 1                  // δ: how much faster answers come than they are used up
	HotQuantile = 0.84               // of the requests in flight of recent answers
	HotMemory   = 128                // recent answers
)

// prequal is the load balancer of Wydrowski et al. (Introducing Prequal, NSDI 2024,
// §4). An answer to a probe has the server's requests in flight
// and its latency. The LB keeps answers in a pool and takes for a request the cold
// one of least latency; if all are hot, that of fewest requests in flight; and a
// random server if there are fewer than two. Of equals in latency it takes the fewest
// in flight, then the oldest.
type prequal struct {
	*sim.Engine
	Probing
	word   sim.Draws
	reuse  float64            // uses of an answer, on average
	lbs    []prober           // for each LB
	sent   sim.Slots[probe]   // probes on their way
	asked  sim.Slots[inquiry] // requests that wait
	memory []latencies        // for each server
}

// probe is a packet to a server, and back.
type probe struct {
	answer
	lb      int32
	back    int64  // ns, the way back
	number  uint32 // of the request
	inquiry int32
	which   uint8
	there   bool // it has been at the server
}

// inquiry is a request that waits for answers.
type inquiry struct {
	request int32
	pending int // probes on their way
	wanted  int // answers to wait for
	answers []answer
}

func newPrequal(e *sim.Engine, s Probing) *prequal {
	n := float64(len(e.Servers))
	p := &prequal{Engine: e, Probing: s, word: sim.NewDraws(e.Result.Seed, sim.ProbeStream),
		lbs: make([]prober, e.Farm.LBs), memory: make([]latencies, len(e.Servers))}
	p.reuse = math.Inf(1)
	if gain := float64((1-PoolSize/n)*ProbesAsync) - PoolRemove; gain > 0 {
		p.reuse = max(1, (1+PoolDelta)/gain)
	}
	return p
}

// words are the random words of a request: 0 the servers that are probed, then for each
// probe its hops and the rounding of its uses.
const ProbeWords = 1 + 2*ProbesSync

func (p *prequal) at(number uint32, which int) uint64 {
	return p.word.At(uint64(number)*ProbeWords + uint64(which))
}

// probe sends n probes to different random servers. It returns how many.
func (p *prequal) probe(r *sim.Request, n int, inquiry int32) (sent int) {
	var list [ProbesSync]int32
	servers := list[:min(n, len(p.Servers))]
	sim.Candidates(servers, p.at(r.Number, 0), len(p.Servers))
	for i, s := range servers {
		if !p.In(s) {
			continue
		}
		there, back := p.HopsOf(p.at(r.Number, 1+2*i))
		slot := p.sent.Take(probe{answer: answer{server: s}, lb: r.LB, back: back, number: r.Number, which: uint8(i), inquiry: inquiry})
		p.Send(time.Duration(there), slot)
		sent++
	}
	return sent
}

// Arrived is a probe at its server, and then at its LB.
func (p *prequal) Arrived(slot int32) {
	k := &p.sent.All[slot]
	if !k.there {
		k.there, k.inFlight = true, p.Servers[k.server].Taken
		p.estimate(&k.answer)
		p.Send(time.Duration(k.back), slot)
		return
	}
	k.answer.at = p.Instant
	k.uses = p.rounded(p.at(k.number, 2+2*int(k.which)))
	answered := p.In(k.server) && !p.IsDown(k.server)
	if answered {
		p.lbs[k.lb].recent.add(k.inFlight)
	}
	if p.Sync {
		p.inform(k.inquiry, k.answer, answered)
	} else if answered {
		p.lbs[k.lb].add(k.answer)
	}
	p.sent.Give(slot)
}

// rounded is reuse, up or down at random.
func (p *prequal) rounded(word uint64) int32 {
	if math.IsInf(p.reuse, 1) {
		return math.MaxInt32
	}
	least := math.Floor(p.reuse)
	if float64(word>>11)/(1<<53) < p.reuse-least {
		least++
	}
	return int32(least)
}

// estimate puts the latency into the server's answer.
func (p *prequal) estimate(a *answer) {
	switch p.Latency {
	case estimated:
		a.latency = p.memory[a.server].median(a.inFlight)
	case Perfect:
		a.service = float64(p.Work.Service.Mean) / p.Stations[a.server].Speed
		a.expect(&p.Farm.Servers[a.server])
	}
}

func (p *prequal) Choose(lb int32, r *sim.Request) int32 {
	if p.Sync {
		return r.Tag
	}
	server := p.lbs[lb].use(p.Instant, p.Latency, p.Farm.Servers)
	if server == sim.None {
		server = p.One(r)
	}
	p.probe(r, ProbesAsync, sim.None)
	p.lbs[lb].remove(p.Latency)
	return server
}

// Ask sends the probes that a request waits for.
func (p *prequal) Ask(request int32, r *sim.Request) bool {
	if !p.Sync {
		return false
	}
	i := p.asked.Take(inquiry{request: request, answers: p.asked.Spare().answers[:0]})
	n := p.probe(r, ProbesSync, i)
	if n == 0 { // all drawn take no flows
		p.asked.Give(i)
		r.Tag = p.One(r)
		return false
	}
	p.asked.All[i].pending, p.asked.All[i].wanted = n, max(1, n-1)
	return true
}

// inform is the end of a probe that a request waits for. The request goes on when
// enough have come; the last comes too late.
func (p *prequal) inform(i int32, a answer, answered bool) {
	q := &p.asked.All[i]
	q.pending--
	q.wanted--
	if answered && q.wanted >= 0 {
		q.answers = append(q.answers, a)
	}
	if q.wanted == 0 {
		r := &p.Requests.All[q.request]
		if r.Tag = p.One(r); len(q.answers) > 0 {
			r.Tag = q.answers[pickAnswer(q.answers, p.lbs[r.LB].recent.hot(), p.Latency)].server
		}
		p.Proceed(q.request)
	}
	if q.pending == 0 {
		p.asked.Give(i)
	}
}

// Accepted notes how many requests are in flight with r.
func (p *prequal) Accepted(r *sim.Request) { r.Tag = p.Servers[r.Server].Taken }

// Served notes the latency of r, for estimates.
func (p *prequal) Served(r *sim.Request) {
	if p.Latency == estimated {
		p.memory[r.Server].add(r.Tag, float64(p.Instant-r.Arrived))
	}
}

// Member forgets the answers of a server that takes no more flows.
func (p *prequal) Member(server int32) {
	for i := range p.lbs {
		p.lbs[i].pool = slices.DeleteFunc(p.lbs[i].pool, func(a answer) bool { return a.server == server })
	}
}
