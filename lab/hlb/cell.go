package hlb

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/stats"
	"proffer/lab/testbed"
	"proffer/lab/trace"
	"proffer/lab/traffic"
)

// cell is a run of the experiment.
type cell struct {
	policy string
	lbs    int
	ratio  int     // cores of a server of the second group; one of the first has one
	load   float64 // of the farm's capacity; of the day, at its peak
	kind   requestKind
	course course
	rtt    int // mean of the clients' round trip, in ms; 0: none is added
}

// requestKind is the kind of the requests of a run.
type requestKind string

const (
	pages requestKind = "pages" // two of three compute; the third is static and takes a tenth
	loops requestKind = "loop"  // all compute
	files requestKind = "files" // none computes: sizes of the paper, sent by one resource that all servers have alike
)

// course is how the rate of requests goes, and the farm.
type course string

const (
	steady course = "steady"
	day    course = "day"    // 24 hours
	slowed course = "slowed" // other work halves the speed of the second group in the middle
)

func (c cell) String() string {
	text := fmt.Sprintf("%s, %s, 1:%d, ρ %.3g, %s", c.policy, stats.Counted(c.lbs, "LB"), c.ratio, c.load, c.kind)
	if c.rtt > 0 {
		text += fmt.Sprintf(", RTT %d ms", c.rtt)
	}
	if c.course != steady {
		text += ", " + string(c.course)
	}
	return text
}

// delay is that of the delay box: Pareto's, by half the mean, 25 % correlated (HLB §VI-D3).
func (c cell) delay() testbed.Delay {
	if c.rtt == 0 {
		return testbed.Delay{}
	}
	way := time.Duration(c.rtt) * time.Millisecond / 2
	return testbed.Delay{Mean: way, Deviation: way / 2, Correlation: 0.25}
}

// kinds are the servers of a cell, as the requests use them.
func (e Experiment) kinds(c cell) farmrun.Kinds {
	k := farmrun.Kinds{Servers: e.servers(c), Cores: 1, Workers: 32}
	if c.ratio > 1 && c.kind != files {
		k.Fast, k.FastCores = k.Servers/2, c.ratio
	}
	return k
}

// servers of a cell. Where they change, a server has about as many requests a second at each LB
// as the paper's: how soon an LB can follow depends on that.
func (e Experiment) servers(c cell) int {
	if c.course == slowed {
		return max(2, e.Servers/4*2)
	}
	return e.Servers
}

// mean of the services of a cell.
func (e Experiment) mean(c cell) time.Duration {
	if c.course == slowed {
		return e.Mean * 2 / 5
	}
	return e.Mean
}

// weights are the configured ones: of the servers' cores, whatever the requests use.
func (e Experiment) weights(c cell, inverted bool) []int {
	c.kind = loops
	return e.kinds(c).WeightsOf(inverted)
}

// The day: HLB has samples of 600 s of each hour, of which its text states two rates (§VI-A2,
// Figure 11) and that servers are idle from 5:00 to 11:00. Between 20:00 and 23:00 the rate
// falls by 40 a second each hour; falling on like this it is 440 at 5:00, and rising like this
// from 11:00 it is 800 again at 20:00.
const (
	dayPeak, dayFall   = 800.0, 40.0
	offPeak, onPeak    = 5, 11
	peakHour, lateHour = 20, 23
	hours              = 24
)

// dayRate is the rate of an hour, of that of the peak.
func dayRate(hour int) float64 {
	down := float64((hour - peakHour + hours) % hours) // hours after the peak
	if hour >= onPeak && hour < peakHour {
		down = float64(peakHour - hour)
	}
	return (dayPeak - dayFall*min(down, hours-peakHour+offPeak)) / dayPeak
}

// lateRate is the paper's load at 23:00, where that of the peak is ours.
const lateRate = (dayPeak - dayFall*(lateHour-peakHour)) / dayPeak

// hour is how long an hour of the day lasts.
func (e Experiment) hour() time.Duration { return e.For / 4 }

// warm is the beginning of a run, which does not count.
func (c cell) warm(e Experiment) time.Duration {
	switch c.course {
	case day:
		return e.hour() // the last of the day before
	case slowed:
		return 0
	default:
		return e.For / 4
	}
}

// length of a cell's arrivals.
func (c cell) length(e Experiment) time.Duration {
	switch c.course {
	case day:
		return (hours + 1) * e.hour()
	case slowed:
		return 2 * e.slowedAt()
	default:
		return c.warm(e) + e.For
	}
}

// slowedAt is when the second group gets other work: HLB's 30 s.
func (e Experiment) slowedAt() time.Duration { return e.For * 3 / 2 }

// asking is the arrivals of a cell; static has those that are.
type asking struct {
	all    []trace.Arrival
	static []bool
}

// Asks is what the run with most requests a second asks for.
func (e Experiment) Asks() (most farmrun.Asks) {
	for _, c := range e.allRuns() {
		if rate := e.rate(c); rate > most.Rate {
			most = farmrun.Asks{Rate: rate, Mean: e.mean(c), Punctual: true}
		}
	}
	if most.Rate == 0 { // the bench alone
		most = farmrun.Asks{Rate: 100, Mean: e.Mean, Punctual: true}
	}
	return most
}

// rate of a cell's arrivals, a second, at its peak.
func (e Experiment) rate(c cell) float64 { return c.load * e.kinds(c).Capacity() / e.mean(c).Seconds() }

// arrivals of a cell: the same for all its policies.
func (e Experiment) arrivals(c cell) asking {
	rate := e.rate(c)
	stretches := []trace.Stretch{{Lasting: c.length(e), Rate: rate}}
	if c.course == day {
		stretches = []trace.Stretch{{Lasting: e.hour(), Rate: rate * dayRate(hours-1)}}
		for h := range hours {
			stretches = append(stretches, trace.Stretch{Lasting: e.hour(), Rate: rate * dayRate(h)})
		}
	}
	a := asking{all: trace.Varying(e.Seed, stretches, e.mean(c))}
	a.static = make([]bool, len(a.all))
	switch c.kind {
	case pages:
		a.mix(e.Seed)
	case files:
		a.size(e.Seed, e.mean(c))
	}
	return a
}

const (
	kindStream = 3 // of a seed, beside those of package trace

	staticShare = 1.0 / 3
	staticTakes = 0.1 // of the time of a page that is computed
)

// mix makes some of the requests static, and the others larger, so that the mean stays.
func (a asking) mix(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, kindStream))
	const page = 1 / (1 - staticShare + staticShare*staticTakes)
	for i := range a.all {
		factor := page
		if a.static[i] = rng.Float64() < staticShare; a.static[i] {
			factor = page * staticTakes
		}
		a.all[i].Service = time.Duration(math.Round(float64(a.all[i].Service) * factor))
	}
}

// fileSizes are HLB's (§VI-E1), in KB.
var fileSizes = []float64{100, 200, 500, 750, 1000, 2000, 5000}

// size makes all requests files of random sizes, by their mean.
func (a asking) size(seed uint64, mean time.Duration) {
	rng := rand.New(rand.NewPCG(seed, kindStream))
	sum := 0.0
	for _, s := range fileSizes {
		sum += s
	}
	each := float64(mean) * float64(len(fileSizes)) / sum
	for i := range a.all {
		a.all[i].Service = time.Duration(math.Round(each * fileSizes[rng.IntN(len(fileSizes))]))
	}
}

// requests gives arrivals fresh client ends.
func (r *run) requests(arrivals []trace.Arrival) []traffic.Request {
	first := r.ends / farmrun.Ports
	r.ends += farmrun.ClientsFor(len(arrivals)) * farmrun.Ports
	return farmrun.Requests(arrivals, r.bed.ClientAddrs[first:min(r.ends/farmrun.Ports, len(r.bed.ClientAddrs))])
}
