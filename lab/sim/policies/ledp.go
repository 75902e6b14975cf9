package policies

import (
	"slices"

	"proffer/lab/sim"
)

var _ = sim.Register(sim.Family{
	Name: "ledp", Pairs: true, Sees: sim.Reports,
	Names: []sim.Spelling{
		{Name: "ledp", Means: "least expected delay in the same view: mean service time × queue factor, as guided's metric", Drawn: ""},
		{Name: "ledp2", Means: "the same of two random servers", Drawn: ""},
	},
	New: func(e *sim.Engine, p sim.Policy) any { return newDelays(e, p.TwoChoices) },
})

// delays is ledp: a signal carries the mean service time of its server's last completions, and
// how many these are. The first of them are the shortest requests, so that they alone would make
// a server look fast: in place of those that lack of gaugeMemory the LB takes the mean of all
// that it has seen, and that alone for a server without a completion.
type delays struct {
	*viewed
	gauges []Gauge    // for each server
	known  []services // for each LB
}

// services are the service times that an LB has seen.
type services struct {
	last      []Gauge   // of each server, as its last signal has it
	sum, seen float64   // ns, completions: of all these
	expected  []float64 // ns, of each server, since its last signal
	unseen    []int32   // servers without a completion so far
}

func newDelays(e *sim.Engine, two bool) *delays {
	n := len(e.Servers)
	d := &delays{viewed: newViewed(e, two), gauges: make([]Gauge, n)}
	for range e.Farm.LBs {
		k := services{last: make([]Gauge, n), expected: make([]float64, n)}
		for s := range n {
			k.unseen = append(k.unseen, int32(s))
		}
		d.known = append(d.known, k)
	}
	d.begin(d.delay)
	return d
}

// mean is that of all servers; before the first completion any time does.
func (k *services) mean() float64 {
	if k.seen == 0 {
		return 1
	}
	return max(1, k.sum/k.seen)
}

// note takes in a server's gauge.
func (k *services) note(server int32, g Gauge) {
	if g.Seen == 0 {
		return
	}
	last := &k.last[server]
	if last.Seen == 0 {
		k.unseen = slices.DeleteFunc(k.unseen, func(s int32) bool { return s == server })
	}
	k.seen += g.Seen - last.Seen
	k.sum += float64(g.Mean*g.Seen) - float64(last.Mean*last.Seen)
	*last = g
	mean := k.mean()
	k.expected[server] = max(1, mean+float64((g.Mean-mean)*g.Seen/GaugeMemory))
}

// delay is the time that the server needs for one more request.
func (d *delays) delay(lb, server int32) float64 {
	k := &d.known[lb]
	service := k.expected[server]
	if service == 0 {
		service = k.mean()
	}
	return service * d.Farm.Servers[server].QueueFactor(d.views[lb][server]+1)
}

// Served measures the time of a core at the present speed.
func (d *delays) Served(r *sim.Request) {
	d.gauges[r.Server].Add(r.Service / d.Stations[r.Server].Speed)
}

func (d *delays) Report(r *sim.Request) {
	d.viewed.Report(r)
	r.Note, r.Noted = d.gauges[r.Server].Mean, uint8(d.gauges[r.Server].Seen)
}

func (d *delays) Signalled(r *sim.Request) {
	k := &d.known[r.LB]
	k.note(r.Server, Gauge{r.Note, float64(r.Noted)})
	for _, s := range k.unseen {
		d.update(r.LB, s)
	}
	d.viewed.Signalled(r)
}
