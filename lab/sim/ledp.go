package sim

import "slices"

var _ = Register(Family{
	Name: "ledp", Pairs: true, Sees: Reports,
	Names: []Spelling{
		{Name: "ledp", Means: "least expected delay in the same view: mean service time × queue factor, as guided's metric", Drawn: ""},
		{Name: "ledp2", Means: "the same of two random servers", Drawn: ""},
	},
	New: func(e *Engine, p Policy) any { return newDelays(e, p.TwoChoices) },
})

// delays is ledp: a signal carries the mean service time of its server's last completions, and
// how many these are. The first of them are the shortest requests, so that they alone would make
// a server look fast: in place of those that lack of gaugeMemory the LB takes the mean of all
// that it has seen, and that alone for a server without a completion.
type delays struct {
	*viewed
	gauges []gauge    // one a server
	known  []services // one an LB
}

// services are the service times that an LB has seen.
type services struct {
	last      []gauge   // of each server, as its last signal has it
	sum, seen float64   // ns, completions: of all these
	expected  []float64 // ns, of each server, since its last signal
	unseen    []int32   // servers without a completion so far
}

func newDelays(e *Engine, two bool) *delays {
	n := len(e.servers)
	d := &delays{viewed: newViewed(e, two), gauges: make([]gauge, n)}
	for range e.farm.LBs {
		k := services{last: make([]gauge, n), expected: make([]float64, n)}
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
func (k *services) note(server int32, g gauge) {
	if g.seen == 0 {
		return
	}
	last := &k.last[server]
	if last.seen == 0 {
		k.unseen = slices.DeleteFunc(k.unseen, func(s int32) bool { return s == server })
	}
	k.seen += g.seen - last.seen
	k.sum += float64(g.mean*g.seen) - float64(last.mean*last.seen)
	*last = g
	mean := k.mean()
	k.expected[server] = max(1, mean+float64((g.mean-mean)*g.seen/gaugeMemory))
}

// delay is the time that the server needs for one more request.
func (d *delays) delay(lb, server int32) float64 {
	k := &d.known[lb]
	service := k.expected[server]
	if service == 0 {
		service = k.mean()
	}
	return service * d.farm.Servers[server].queueFactor(d.views[lb][server]+1)
}

// Served measures the time of a core at the present speed.
func (d *delays) Served(r *Request) {
	d.gauges[r.server].add(r.service / d.stations[r.server].speed)
}

func (d *delays) Report(r *Request) {
	d.viewed.Report(r)
	r.note, r.noted = d.gauges[r.server].mean, uint8(d.gauges[r.server].seen)
}

func (d *delays) Signalled(r *Request) {
	k := &d.known[r.lb]
	k.note(r.server, gauge{r.note, float64(r.noted)})
	for _, s := range k.unseen {
		d.update(r.lb, s)
	}
	d.viewed.Signalled(r)
}
