package paper

import (
	"fmt"
	"slices"
	"time"

	"proffer/lab/figures"
	"proffer/lab/sim"
	"proffer/lab/stats"
)

// setup is a run of the simulator.
type setup struct {
	farm   sim.Farm
	policy string
	work   sim.Workload

	perSecond float64 // requests
}

// at is the farm's own workload at load rho, with as many requests as the
// options allow.
func at(farm sim.Farm, policy string, rho float64, o Options) setup {
	s := setup{farm: farm, policy: policy, work: farm.Load(rho)}
	s.perSecond = rho * farm.Capacity(s.work)
	s.work.Requests = o.requests(s.work.Requests)
	return s
}

// requestCost is the time of one request of a run.
const requestCost = 1300 * time.Nanosecond

// cell runs s and keeps the numbers that read takes from the result.
func (s setup) cell(read func(sim.Result) []float64) cell {
	return cell{time.Duration(s.work.Requests) * requestCost, func(seed uint64) ([]float64, error) {
		r, err := s.run(seed)
		if err != nil {
			return nil, err
		}
		return read(r), nil
	}}
}

func (s setup) run(seed uint64) (sim.Result, error) {
	p, err := sim.ParsePolicy(s.policy)
	if err != nil {
		return sim.Result{}, err
	}
	return sim.Run(s.farm, p, s.work, seed)
}

// The numbers that latencies keeps of a run, in ms.
const (
	mean = iota
	p25
	p50
	p75
	p90
	p99
	refused // % of the requests that count
	visits  // servers a request visits
)

func latencies(r sim.Result) []float64 {
	sorted := slices.Sorted(slices.Values(r.Latencies))
	return []float64{
		r.Mean, stats.Quantile(sorted, 0.25), r.P50, stats.Quantile(sorted, 0.75), r.P90, r.P99,
		100 * float64(r.Refused) / float64(r.Counted), r.Hops,
	}
}

// shares are the heights at which a distribution is drawn.
var shares = slices.Concat(steps(0, 0.98, 0.01), []float64{0.985, 0.99, 0.995})

func quantiles(r sim.Result) []float64 {
	sorted := slices.Sorted(slices.Values(r.Latencies))
	values := make([]float64, len(shares))
	for i, q := range shares {
		values[i] = stats.Quantile(sorted, q)
	}
	return values
}

// distribution is the curve of a cell that holds quantiles.
func distribution(name string, m measured, cell int) figures.Curve {
	c := figures.Curve{Name: name}
	for i, share := range shares {
		ms, _ := m.at(cell, i)
		c.Points = append(c.Points, figures.Point{X: ms, Y: share})
	}
	return c
}

// box draws latencies, in s: quartiles, median and, with its interval, p90.
func box(m measured, cell int) figures.Box {
	low, _ := m.at(cell, p25)
	middle, _ := m.at(cell, p50)
	high, _ := m.at(cell, p75)
	value, half := m.at(cell, p90)
	return figures.Box{Low: scale(low, 1e-3), Middle: scale(middle, 1e-3), High: scale(high, 1e-3), Value: scale(value, 1e-3), Half: scale(half, 1e-3)}
}

func overSeeds(o Options, note string) string {
	if o.Quick {
		note = "a sketch: " + note
	}
	return fmt.Sprintf("%s; mean over %d seeds, error bars are its 95 %% interval", note, o.Seeds)
}

// ratio is how many times one cell's number is another's, run by run: both met
// the same requests.
func ratio(m measured, above, below, number int) (value, half float64) {
	values := make([][]float64, len(m[above]))
	for i := range values {
		values[i] = []float64{m[above][i][number] / m[below][i][number]}
	}
	return measured{values}.at(0, 0)
}
