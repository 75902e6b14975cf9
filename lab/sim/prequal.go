package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

var _ = Register(Family{
	Name: "prequal", Sees: Reports,
	Names: []Spelling{
		{Name: "prequal", Means: "Prequal (NSDI 2024): 3 asynchronous probes a request, hot servers by requests in flight, cold ones by latency", Drawn: ""},
		{Name: "prequal:inflight", Means: "the same by requests in flight alone", Drawn: ""},
		{Name: "prequal:perfect", Means: "the same with servers that know their latency: mean service × queue factor", Drawn: ""},
		{Name: "prequal:sync", Means: "the same with 5 probes that the request waits for; also prequal:sync:inflight, :perfect", Drawn: ""},
	},
	Parse: parseProbing,
	New:   func(e *Engine, p Policy) any { return newPrequal(e, p.Settings.(probing)) },
})

// probing are the settings of prequal.
type probing struct {
	latency latencyKind
	sync    bool
}

// latencyKind is the server's answer about latency.
type latencyKind uint8

const (
	estimated latencyKind = iota // the median of those of about as many requests in flight
	unused                       // none
	perfect                      // mean service × queue factor
)

func parseProbing(p *Policy, options string) error {
	s := probing{}
	for o := range strings.SplitSeq(options, ":") {
		switch {
		case !p.Refined():
		case o == "inflight":
			s.latency = unused
		case o == "perfect":
			s.latency = perfect
		case o == "sync":
			s.sync = true
		default:
			return fmt.Errorf("%q: want inflight, perfect or sync", o)
		}
	}
	p.Settings = s
	return nil
}

// The parameters of the paper, and of its experiments.
const (
	probesAsync = 3                  // a request
	probesSync  = 5                  // a request, which waits for all but the last
	poolSize    = 16                 // answers of an LB
	poolAge     = int64(time.Second) // of an answer, at most
	poolRemove  = 1                  // answers that are removed a request
	poolDelta   = 1                  // δ: how much faster answers come than they are used up
	hotQuantile = 0.84               // of the requests in flight of recent answers
	hotMemory   = 128                // recent answers
)

// prequal is the load balancer of Wydrowski et al. (Introducing Prequal, NSDI 2024,
// §4). An answer to a probe has the server's requests in flight
// and its latency. The LB keeps answers in a pool and takes for a request the cold
// one of least latency; if all are hot, the one of fewest requests in flight; and a
// random server if there are fewer than two. Of equals in latency it takes the fewest
// in flight, then the oldest.
type prequal struct {
	*Engine
	probing
	word   draws
	reuse  float64        // uses of an answer, on average
	lbs    []prober       // one an LB
	sent   slots[probe]   // probes on their way
	asked  slots[inquiry] // requests that wait
	memory []latencies    // one a server
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

func newPrequal(e *Engine, s probing) *prequal {
	n := float64(len(e.servers))
	p := &prequal{Engine: e, probing: s, word: newDraws(e.result.seed, probeStream),
		lbs: make([]prober, e.farm.LBs), memory: make([]latencies, len(e.servers))}
	p.reuse = math.Inf(1)
	if gain := float64((1-poolSize/n)*probesAsync) - poolRemove; gain > 0 {
		p.reuse = max(1, (1+poolDelta)/gain)
	}
	return p
}

// words are the random words of a request: 0 the servers that are probed, then for each
// probe its hops and the rounding of its uses.
const probeWords = 1 + 2*probesSync

func (p *prequal) at(number uint32, which int) uint64 {
	return p.word.at(uint64(number)*probeWords + uint64(which))
}

// probe sends n probes to different random servers. It returns how many.
func (p *prequal) probe(r *Request, n int, inquiry int32) (sent int) {
	var list [probesSync]int32
	servers := list[:min(n, len(p.servers))]
	candidates(servers, p.at(r.number, 0), len(p.servers))
	for i, s := range servers {
		if !p.in(s) {
			continue
		}
		there, back := p.hopsOf(p.at(r.number, 1+2*i))
		slot := p.sent.take(probe{answer: answer{server: s}, lb: r.lb, back: back, number: r.number, which: uint8(i), inquiry: inquiry})
		p.Send(time.Duration(there), slot)
		sent++
	}
	return sent
}

// Arrived is a probe at its server, and then at its LB.
func (p *prequal) Arrived(slot int32) {
	k := &p.sent.all[slot]
	if !k.there {
		k.there, k.inFlight = true, p.servers[k.server].taken
		p.estimate(&k.answer)
		p.Send(time.Duration(k.back), slot)
		return
	}
	k.answer.at = p.now
	k.uses = p.rounded(p.at(k.number, 2+2*int(k.which)))
	answered := p.in(k.server) && !p.isDown(k.server)
	if answered {
		p.lbs[k.lb].recent.add(k.inFlight)
	}
	if p.sync {
		p.inform(k.inquiry, k.answer, answered)
	} else if answered {
		p.lbs[k.lb].add(k.answer)
	}
	p.sent.give(slot)
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
	switch p.latency {
	case estimated:
		a.latency = p.memory[a.server].median(a.inFlight)
	case perfect:
		a.service = float64(p.work.Service.Mean) / p.stations[a.server].speed
		a.expect(&p.farm.Servers[a.server])
	}
}

func (p *prequal) Choose(lb int32, r *Request) int32 {
	if p.sync {
		return r.tag
	}
	server := p.lbs[lb].use(p.now, p.latency, p.farm.Servers)
	if server == none {
		server = p.one(r)
	}
	p.probe(r, probesAsync, none)
	p.lbs[lb].remove(p.latency)
	return server
}

// Ask sends the probes that a request waits for.
func (p *prequal) Ask(request int32, r *Request) bool {
	if !p.sync {
		return false
	}
	i := p.asked.take(inquiry{request: request, answers: p.asked.spare().answers[:0]})
	n := p.probe(r, probesSync, i)
	if n == 0 { // all drawn take no flows
		p.asked.give(i)
		r.tag = p.one(r)
		return false
	}
	p.asked.all[i].pending, p.asked.all[i].wanted = n, max(1, n-1)
	return true
}

// inform is the end of a probe that a request waits for. The request goes on when
// enough have come; the last comes too late.
func (p *prequal) inform(i int32, a answer, answered bool) {
	q := &p.asked.all[i]
	q.pending--
	q.wanted--
	if answered && q.wanted >= 0 {
		q.answers = append(q.answers, a)
	}
	if q.wanted == 0 {
		r := &p.requests.all[q.request]
		if r.tag = p.one(r); len(q.answers) > 0 {
			r.tag = q.answers[pickAnswer(q.answers, p.lbs[r.lb].recent.hot(), p.latency)].server
		}
		p.Proceed(q.request)
	}
	if q.pending == 0 {
		p.asked.give(i)
	}
}

// Accepted notes how many requests are in flight with r.
func (p *prequal) Accepted(r *Request) { r.tag = p.servers[r.server].taken }

// Served notes the latency of r, for estimates.
func (p *prequal) Served(r *Request) {
	if p.latency == estimated {
		p.memory[r.server].add(r.tag, float64(p.now-r.arrived))
	}
}

// Member forgets the answers of a server that takes no more flows.
func (p *prequal) Member(server int32) {
	for i := range p.lbs {
		p.lbs[i].pool = slices.DeleteFunc(p.lbs[i].pool, func(a answer) bool { return a.server == server })
	}
}
