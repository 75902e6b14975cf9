package farm

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	"proffer/schema"
)

func complete(f *File) {
	file := path.Base(f.doc.File)
	f.Name = cmp.Or(f.Name, strings.TrimSuffix(file, path.Ext(file)))
}

// Servers is how many there are in all groups.
func (f *File) Servers() int {
	n := 0
	for _, g := range f.Groups {
		n += g.Count
	}
	return n
}

// check finds the mistakes of a farm file that no single value shows.
func check(d *schema.Document, f *File) {
	checkGroups(d, f)
	checkBackground(d, f)
	checkEvents(d, f)
	checkTimes(d, "client_rtt", f.ClientRTT)
	checkTimes(d, "service", f.Service)
	checkTimes(d, "io", f.IO)
	checkArrivals(d, f.Arrivals)
	if f.HopLeast > f.HopMost {
		d.Failf("hop.least", "%s is above hop.most, %s", schema.Short(f.HopLeast), schema.Short(f.HopMost))
	}
	if f.Antagonists.Least > f.Antagonists.Most {
		d.Failf("antagonists.least", "%v is above most, %v", f.Antagonists.Least, f.Antagonists.Most)
	}
	if f.Until > 0 && f.After >= f.Until {
		d.Failf("counted.until", "%s is not after counted.after, %s", schema.Short(f.Until), schema.Short(f.After))
	}
	if f.CountFrom >= f.CountTo {
		d.Failf("counted", "from %v to %v is no request at all; want from below to", f.CountFrom, f.CountTo)
	}
}

func checkGroups(d *schema.Document, f *File) {
	if n := f.Servers(); n > MaxServers {
		d.Failf("servers", "are %d together; want at most %d", n, MaxServers)
	}
	for i, g := range f.Groups {
		if g.Discipline == Sharing && g.Workers < g.Cores {
			d.Failf(fmt.Sprintf("servers[%d].workers", i), "%d is below cores, %d, so some cores could never work", g.Workers, g.Cores)
		}
	}
}

// checkBackground also refuses work without end that leaves a server nothing:
// its requests would never be finished, nor would the run.
func checkBackground(d *schema.Document, f *File) {
	taken := make([]float64, min(f.Servers(), MaxServers))
	for i, b := range f.Background {
		at := fmt.Sprintf("background[%d]", i)
		if b.Last >= len(taken) {
			d.Failf(at+".servers", "has number %d; want 0 to %d, there are %d servers", b.Last, len(taken)-1, len(taken))
			continue
		}
		if b.To > 0 {
			if b.To <= b.From {
				d.Failf(at+".to", "%s is not after from, %s", schema.Short(b.To), schema.Short(b.From))
			}
			continue
		}
		for s := b.First; s <= b.Last; s++ {
			taken[s] += b.Cores
		}
	}
	first := 0
	for i, g := range f.Groups {
		for s := first; s < min(first+g.Count, len(taken)); s++ {
			if taken[s] > 0.999*float64(g.Cores) {
				d.Failf("background", "leaves server %d (servers[%d]) nothing of its cores, %d, for ever; want less, or an end", s, i, g.Cores)
				return
			}
		}
		first += g.Count
	}
}

// checkEvents refuses events at servers and LBs that do not exist.
func checkEvents(d *schema.Document, f *File) {
	for i, v := range f.Events {
		at := fmt.Sprintf("events[%d]", i)
		switch {
		case v.Kind == FailLB && v.LB >= f.LBs:
			d.Failf(at+".lb", "is %d; want 0 to %d, there are %d LBs", v.LB, f.LBs-1, f.LBs)
		case v.Last >= f.Servers():
			d.Failf(at+".servers", "has number %d; want 0 to %d, there are %d servers", v.Last, f.Servers()-1, f.Servers())
		}
	}
}

// mostSpread keeps the sum of the times inside 64 bits of nanoseconds.
const mostSpread = 100

// leastPareto is the least shape of Pareto's distribution; its mean exists above 1.
const leastPareto = 1.1

func checkTimes(d *schema.Document, key string, t Times) {
	switch {
	case t.Family == Hyperexponential && t.SD < t.Mean:
		d.Failf(key+".sd", "%s is below the mean, %s; a hyperexponential distribution spreads at least as much as an exponential one", schema.Short(t.SD), schema.Short(t.Mean))
	case t.SD > mostSpread*t.Mean:
		d.Failf(key+".sd", "%s is more than %d times the mean, %s", schema.Short(t.SD), mostSpread, schema.Short(t.Mean))
	case t.Family == Pareto && t.Shape < leastPareto:
		d.Failf(key+".shape", "%v is below %v; nearer to 1, the mean comes from times that no run meets", t.Shape, leastPareto)
	case t.Short > t.Long:
		d.Failf(key+".short", "%s is above long, %s", schema.Short(t.Short), schema.Short(t.Long))
	}
}

func checkArrivals(d *schema.Document, a Arrivals) {
	if a.Low > a.High {
		d.Failf("arrivals.low", "%v is above high, %v", a.Low, a.High)
	}
	for i, s := range a.Steps {
		at := fmt.Sprintf("arrivals.steps[%d]", i)
		last := i == len(a.Steps)-1
		switch {
		case last && s.Lasting > 0:
			d.Failf(at+".lasting", "is given for the last step, which goes on for ever; remove it")
		case last && s.Rate == 0:
			d.Failf(at+".rate", "is 0 in the last step, so the requests would never all come; want more than 0")
		case !last && s.Lasting == 0:
			d.Failf(at+".lasting", "is missing; only the last step goes on for ever")
		}
	}
}
