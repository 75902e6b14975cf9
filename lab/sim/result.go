package sim

import (
	"math"
	"slices"
	"time"

	"proffer/lab/stats"
)

// Result is the outcome of a run. Times are flow completion times in milliseconds,
// of the requests that count.
type Result struct {
	Policy string
	Farm   string
	Seed   uint64

	Counted   int       // requests that count, refused ones included
	Refused   int       // of them
	Latencies []float64 // in order of arrival; refusals are in it only if the farm has a Penalty
	First     int       // the number of the first that counts; −1: none does
	Course    []float64 // ms, mean times of CourseParts parts of all requests, by order of arrival; NaN: of none

	Mean, P50, P90, P99 float64
	Hops                float64 // servers that a request visited, on average

	Served    []int         // requests that each server completed, of all
	Rejected  []int         // and refused
	Accepted  []int         // and accepted
	PassedOn  []int         // offers that each server passed on
	Times     []float64     // mean time, in ms, of each server's requests that count; NaN: it has none
	Busy      []float64     // share of each server's power that completed requests took, until the end
	Lost      int           // of all requests: connections of a server that failed, or SYNs that none answered
	Reset     int           // of all requests: an LB failed, and the next did not find the server
	Recovered int           // of all requests: an LB failed, and the next found the server
	Repeated  int           // SYNs sent again because a server had failed
	Untracked int           // of all requests, those that found no slot in a flow table
	Packets   int           // data packets sampled by learned; not among Events
	Events    int           // processed, of all requests
	Lasted    time.Duration // virtual time
	Weights   [][]float64   // lsq, sed, learned: of each LB and server, at the end
	Rows      []Row         // one a request if Workload.KeepRows
}

// Row is a request.
type Row struct {
	At, Service, FCT time.Duration
	Begun, Ended     time.Duration // when a core began with it, 0 if refused; when the client had the answer
	LB, Server, Hops int
	Refused          bool
	Lost, Reset      bool
}

// CourseParts is how many parts the requests of a run are cut into, if there are as many.
const CourseParts = 200

// stretch is a part of a run's requests.
type stretch struct {
	sum float64 // ms
	n   int
}

// tally collects a Result.
type tally struct {
	Seed      uint64
	from, to  int
	first     int       // the first that counts
	requests  int       // of the run
	course    []stretch // of all requests
	after     int64     // ns, these two: the instants of arrival that count
	until     int64
	counted   int
	penalty   int64
	times     []float64 // ms, of requests from to to; unanswered: does not count as a time
	served    []int
	turned    []int     // requests that each server refused
	accepted  []int     // and accepted
	passed    []int     // and passed on
	sums      []float64 // ms, of those that each server served and that count
	numbers   []int     // of these
	worked    []float64 // ns of service, of those that each completed
	Open      int       // sent, not answered
	Done      int
	refused   int // of those that count
	Rejected  int // of all
	Lost      int // of all, as are these
	Reset     int
	recovered int
	repeated  int
	hops      int
	untracked int
	Packets   int
	events    int
	rows      []Row
}

const unanswered = -1

func (t *tally) begin(f Farm, w Workload, seed uint64) {
	t.Seed, t.penalty = seed, int64(f.Penalty)
	t.from, t.to = w.counted()
	t.first, t.requests = -1, w.Requests
	t.course = make([]stretch, min(w.Requests, CourseParts))
	t.after, t.until = int64(w.After), Never
	if w.Until > 0 {
		t.until = int64(w.Until)
	}
	t.times = make([]float64, t.to-t.from)
	for i := range t.times {
		t.times[i] = unanswered
	}
	t.served, t.turned = make([]int, len(f.Servers)), make([]int, len(f.Servers))
	t.worked, t.sums = make([]float64, len(f.Servers)), make([]float64, len(f.Servers))
	t.accepted, t.passed, t.numbers = make([]int, len(f.Servers)), make([]int, len(f.Servers)), make([]int, len(f.Servers))
	if w.KeepRows {
		t.rows = make([]Row, w.Requests)
	}
}

func (t *tally) complete(at int64, r *Request) {
	t.Open--
	t.Done++
	t.served[r.Server]++
	t.worked[r.Server] += r.Service
	t.hops += int(r.hops)
	t.record(at, at-r.start, r, false)
}

func (t *tally) refuse(at int64, r *Request) {
	t.Open--
	t.Rejected++
	t.turned[r.Server]++
	t.hops += int(r.hops)
	if t.counts(r) {
		t.refused++
	}
	took := int64(-1)
	if t.penalty > 0 {
		took = at - r.start + t.penalty
	}
	t.record(at, took, r, true)
}

// early is the end of a request without an answer.
type early uint8

const (
	lost early = iota
	reset
)

// end is a request that gets no answer. It has no time.
func (t *tally) end(at int64, r *Request, how early) {
	t.Open--
	t.hops += int(r.hops)
	t.record(at, -1, r, false)
	if how == lost {
		t.Lost++
	} else {
		t.Reset++
	}
	if t.rows != nil {
		t.rows[r.Number].Lost, t.rows[r.Number].Reset = how == lost, how == reset
	}
}

// counts reports whether the request is one of those that count.
func (t *tally) counts(r *Request) bool {
	n := int(r.Number)
	return n >= t.from && n < t.to && r.start >= t.after && r.start < t.until
}

func (t *tally) record(at, took int64, r *Request, refused bool) {
	ms := float64(took) / 1e6
	if took >= 0 {
		part := &t.course[int(r.Number)*len(t.course)/t.requests]
		part.sum += ms
		part.n++
	}
	if t.counts(r) {
		if t.counted++; t.first < 0 || int(r.Number) < t.first {
			t.first = int(r.Number)
		}
		t.times[int(r.Number)-t.from] = ms
		if took >= 0 && !refused {
			t.sums[r.Server] += ms
			t.numbers[r.Server]++
		}
	}
	if t.rows != nil {
		row := &t.rows[r.Number]
		row.At, row.Service, row.FCT = time.Duration(r.start), time.Duration(r.Service), time.Duration(took)
		row.Begun, row.Ended = time.Duration(r.Begun), time.Duration(at)
		row.LB, row.Server, row.Hops, row.Refused = int(r.LB), int(r.Server), int(r.hops), refused
	}
}

// result closes the books. All requests have been answered.
func (e *Engine) Close() Result {
	t := &e.Result
	r := Result{
		Policy: e.Policy.Name, Farm: e.Farm.Name, Seed: t.Seed,
		Counted: t.counted, Refused: t.refused, Served: t.served, Rejected: t.turned, Busy: e.busy(),
		Accepted: t.accepted, PassedOn: t.passed, Times: t.means(), First: t.first,
		Hops: float64(t.hops) / float64(max(1, t.Done+t.Rejected+t.Lost+t.Reset)),
		Lost: t.Lost, Reset: t.Reset, Recovered: t.recovered, Repeated: t.repeated,
		Untracked: t.untracked, Packets: t.Packets, Events: t.events, Lasted: time.Duration(e.Instant), Rows: t.rows,
	}
	r.Latencies = slices.DeleteFunc(t.times, func(ms float64) bool { return ms < 0 })
	for _, part := range t.course {
		r.Course = append(r.Course, part.sum/float64(part.n)) // NaN without a number
	}
	if s, ok := e.Chooser.(Scorer); ok {
		r.Weights = s.Weighed()
	}
	r.summarize()
	return r
}

// means are the mean times of the servers.
func (t *tally) means() []float64 {
	means := make([]float64, len(t.sums))
	for i, sum := range t.sums {
		means[i] = sum / float64(t.numbers[i]) // NaN without a number
	}
	return means
}

// busy is each server's work as a share of its capacity, without background
// work.
func (e *Engine) busy() []float64 {
	busy := make([]float64, len(e.Farm.Servers))
	for i, s := range e.Farm.Servers {
		busy[i] = e.Result.worked[i] / float64(s.Power()*float64(max(1, e.Instant)))
	}
	return busy
}

func (r *Result) summarize() {
	if len(r.Latencies) == 0 {
		r.Mean, r.P50, r.P90, r.P99 = math.NaN(), math.NaN(), math.NaN(), math.NaN()
		return
	}
	sum := 0.0
	for _, x := range r.Latencies {
		sum += x
	}
	r.Mean = sum / float64(len(r.Latencies))
	sorted := slices.Clone(r.Latencies)
	slices.Sort(sorted)
	r.P50, r.P90, r.P99 = stats.Quantile(sorted, 0.5), stats.Quantile(sorted, 0.9), stats.Quantile(sorted, 0.99)
}
