package control

import (
	"math"
	"time"
)

// Gauge learns the mean service time of a service: how long a request takes without the time that
// it queues. It is the mean number of requests in service over the rate of answers (the utilization
// law), so it needs no request's begin and end, of any protocol, and holds for several requests at
// once on a connection.
type Gauge struct {
	begun    bool
	at       time.Duration // of the last sample
	serving  float64       // then: requests in service
	answered uint64        // then, since the agent's start

	span time.Duration // of this window so far
	now  window

	windows float64 // their weights' sum
	all     window  // their weighted sums
	// Sums of products, with the squares of the weights.
	squares, areas, products, counts float64
}

// window is the area under the number of requests in service, in seconds, and the answers.
type window struct{ area, answers float64 }

const (
	gaugeWindow = 250 * time.Millisecond
	gaugeMemory = 32 // windows with requests; as many completions as the simulator's gauge remembers
)

// Observe takes the number of requests in service at an instant, and how many were answered until
// then.
func (g *Gauge) Observe(at time.Duration, serving float64, answered uint64) {
	if g.begun && at > g.at && at-g.at <= gaugeWindow && answered >= g.answered {
		g.span += at - g.at
		g.now.area += (at - g.at).Seconds() * (serving + g.serving) / 2
		g.now.answers += float64(answered - g.answered)
	}
	g.begun, g.at, g.serving, g.answered = true, at, serving, answered
	if g.span >= gaugeWindow {
		g.end()
	}
}

// end adds a window to the sums. A window without a request teaches nothing and makes none forgotten.
func (g *Gauge) end() {
	a, n := g.now.area, g.now.answers
	g.span, g.now = 0, window{}
	if a == 0 && n == 0 {
		return
	}
	const keep = 1 - 1.0/gaugeMemory
	g.windows = keep*g.windows + 1
	g.all.area = keep*g.all.area + a
	g.all.answers = keep*g.all.answers + n
	g.squares = keep*keep*g.squares + 1
	g.areas = keep*keep*g.areas + a*a
	g.products = keep*keep*g.products + a*n
	g.counts = keep*keep*g.counts + n*n
}

// Speed is the service time that a gauge has learned.
type Speed struct {
	Mean    time.Duration // service time
	Error   float64       // relative standard error of the mean
	Answers float64       // that it rests on
}

// Speed returns the mean; false: there were too few requests. The error is that of a ratio of sums,
// by how the windows differ.
func (g *Gauge) Speed() (Speed, bool) {
	number := g.windows * g.windows / g.squares // of windows of equal weight
	if !(number > 1.5) || g.all.answers == 0 || g.all.area == 0 {
		return Speed{}, false
	}
	mean := g.all.area / g.all.answers
	residue := g.areas - 2*mean*g.products + mean*mean*g.counts
	return Speed{
		Mean:    time.Duration(mean * float64(time.Second)),
		Error:   math.Sqrt(max(0, residue)*number/(number-1)) / g.all.area,
		Answers: g.all.answers,
	}, true
}
