package paper

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"proffer/lab/figures"
	"proffer/lab/sim"
	"proffer/policy"
	"proffer/table"
	"proffer/topo"
)

// Figures of the consistent-hash table (6LB §III-B, §VI-B4, §VI-B5).

func hashFigures() []Figure {
	return []Figure{
		{"6lb-7", "broken flows when k of 1000 servers go, lists of 1 and of 2", "", failureRate},
		{"6lb-11b", "mean response time against table size, 64 to 65536, under SR_4 and SC",
			"simulated, not the testbed: small tables cost less than there, SR_4 stays below SC at every size; below it is the cause, the unevenness of the servers' first places", tableSizes},
		{"6lb-11d", "extra connection resets when x of 48 servers go and the LB changes",
			"the numbers x are ours; connections are long-lived, so the static:8 servers fill up to 8 and then take the flows passed on", resets},
	}
}

// pool is n servers of new identities.
func pool(seed uint64, n int) []table.Server {
	servers := make([]table.Server, n)
	for i := range servers {
		servers[i] = table.Server{ID: fmt.Sprintf("run%d/server%d", seed, i), Weight: 1}
	}
	return servers
}

// without removes the first k of order.
func without(servers []table.Server, order []int, k int) ([]table.Server, []bool) {
	left, removed := slices.Clone(servers), make([]bool, len(servers))
	for _, i := range order[:k] {
		left[i].Weight, removed[i] = 0, true
	}
	return left, removed
}

func shuffled(seed uint64, n int) []int { return rand.New(rand.NewPCG(seed, 7)).Perm(n) }

const (
	tableServers = 1000
	experiments  = 20
	buildCost    = 5 * time.Millisecond // N = 1000, M = 65537
)

// failureRate is 6LB Figure 7: the first number of a cell is the rate with lists
// of one, the second with lists of two, the third how much less that is; in %.
func failureRate(o Options) plan {
	ks := steps(0, 30, 1)
	p := plan{seeds: experiments}
	if o.Quick {
		ks, p.seeds = []float64{0, 8, 30}, 4
	}
	for _, k := range ks {
		p.cells = append(p.cells, cell{4 * buildCost, func(seed uint64) ([]float64, error) { return broken(seed, int(k)) }})
	}
	p.draw = func(m measured) (*figures.Figure, error) {
		return figures.NewChart(failureChart(m, ks, p.seeds))
	}
	return p
}

func broken(seed uint64, k int) ([]float64, error) {
	servers := pool(seed, tableServers)
	left, removed := without(servers, shuffled(seed, len(servers)), k)
	var rates []float64
	for choices := 1; choices <= 2; choices++ {
		before, err := table.Build(servers, table.DefaultBuckets, choices)
		if err != nil {
			return nil, err
		}
		after, err := table.Build(left, table.DefaultBuckets, choices)
		if err != nil {
			return nil, err
		}
		failures, flows := table.Failures(before, after, removed)
		rates = append(rates, 100*float64(failures)/float64(flows))
	}
	fewer := 0.0
	if rates[0] > 0 {
		fewer = 100 * (1 - rates[1]/rates[0])
	}
	return append(rates, fewer), nil
}

func failureChart(m measured, ks []float64, runs int) figures.Chart {
	rate := sweep{[]string{"1 choice (Maglev)", "2 choices (6LB)"}, ks}
	c := figures.Chart{
		Title: "6LB Figure 7: flows broken when servers go (N = 1000, M = 65537)",
		Notes: []string{fmt.Sprintf("mean and 95 %% interval of %d experiments; a flow is broken if its server is no longer in its list", runs)},
		X:     figures.Axis{Label: "servers removed, k", Column: "servers_removed"},
		Panels: []figures.Panel{
			{Y: figures.Axis{Label: "broken flows (%)", Column: "broken_flows_percent"}},
			{Y: figures.Axis{Label: "fewer with 2 choices (%)", Column: "fewer_with_2_choices_percent"}},
		},
	}
	fewer := figures.Curve{Name: "ours: fewer with 2 choices"}
	for i, name := range rate.names {
		curve := figures.Curve{Name: name}
		for j, k := range ks {
			curve.Points = append(curve.Points, m.point(k, j, i, 1))
		}
		c.Panels[0].Curves = append(c.Panels[0].Curves, curve)
	}
	for j, k := range ks {
		if k > 0 {
			fewer.Points = append(fewer.Points, m.point(k, j, 2, 1))
		}
	}
	published := figures.Curve{Name: "published: up to 44 % (k = 8)", Kind: figures.Published, Points: []figures.Point{{X: 8, Y: 44}}}
	c.Panels[1].Curves = []figures.Curve{fewer, published}
	return c
}

// tableSizes is 6LB Figure 11b: farm A with lists from a table, at ρ = 0.71.
func tableSizes(o Options) plan {
	sizes := o.some(64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
	response := sweep{[]string{"hunt:static:4"}, sizes}
	run := func(name string, m float64) cell {
		farm := sim.FarmA()
		farm.Table = int(m)
		return at(farm, name, 0.71, o).cell(latencies)
	}
	p := plan{cells: append(response.cells(run), run("single", sizes[len(sizes)-1]))}
	for _, m := range sizes {
		p.cells = append(p.cells, cell{time.Duration(m) * 100, func(seed uint64) ([]float64, error) { return firstPlaces(seed, int(m)) }})
	}
	p.draw = func(m measured) (*figures.Figure, error) {
		single := figures.Curve{Name: "single"} // one value, at the largest table
		for _, x := range []float64{sizes[0], sizes[len(sizes)-1]} {
			single.Points = append(single.Points, m.point(x, len(sizes), mean, 1e-3))
		}
		uneven := figures.Curve{Name: "hunt:static:4"}
		for i, size := range sizes {
			uneven.Points = append(uneven.Points, m.point(size, len(sizes)+1+i, 0, 1))
		}
		return figures.NewChart(figures.Chart{
			Title: "6LB Figure 11b: response time and the size of the table (farm A, ρ = 0.71)",
			Notes: []string{
				overSeeds(o, "80,000 requests a run"),
				"published: almost the same for large tables, noticeably longer for M ≤ 1024; longer than SC only for M ≤ 128",
			},
			X: figures.Axis{Label: "table size M (buckets)", Column: "buckets", From: 64, To: 65536, Log: true, Marks: sizes},
			Panels: []figures.Panel{
				{Y: figures.Axis{Label: "mean response time (s)", Column: "mean_s"}, Curves: append(response.curves(m, mean, 1e-3), single)},
				{Y: figures.Axis{Label: "first places, most / mean", Column: "most_over_mean", From: 1}, Curves: []figures.Curve{uneven}},
			},
		})
	}
	return p
}

func firstPlaces(seed uint64, m int) ([]float64, error) {
	t, err := table.Build(pool(seed, 48), m, 2)
	if err != nil {
		return nil, err
	}
	first := make([]float64, 48)
	for b := range m {
		first[t.Bucket(b)[0]]++
	}
	return []float64{slices.Max(first) * 48 / float64(m)}, nil
}

// resets is 6LB Figure 11d.
func resets(o Options) plan {
	xs := steps(1, 10, 1)
	p := plan{seeds: 10}
	for _, x := range xs {
		p.cells = append(p.cells, cell{4 * time.Millisecond, func(seed uint64) ([]float64, error) { return reset(seed, int(x)) }})
	}
	p.draw = func(m measured) (*figures.Figure, error) {
		var curves []figures.Curve
		for i, name := range []string{"single", "hunt:static:8"} {
			c := figures.Curve{Name: name}
			for j, x := range xs {
				c.Points = append(c.Points, m.point(x, j, i, 1))
			}
			curves = append(curves, c)
		}
		for i, bound := range []float64{4, 2} {
			curves = append(curves, figures.Curve{Name: "published bound: " + curves[i].Name, Kind: figures.Model, Of: curves[i].Name, Points: []figures.Point{{X: 1, Y: bound}, {X: 10, Y: bound}}})
		}
		return figures.NewChart(figures.Chart{
			Title:  "6LB Figure 11d: extra resets when servers go and the LB changes",
			Notes:  []string{"1000 long-lived flows, N = 48, M = 4096, mean and 95 % interval of 10 experiments; flows of the removed servers, lost anyway, do not count"},
			X:      figures.Axis{Label: "servers removed", Column: "servers_removed", From: 0, To: 10.2},
			Panels: []figures.Panel{{Y: figures.Axis{Label: "extra resets (% of flows)", Column: "extra_resets_percent"}, Curves: curves}},
		})
	}
	return p
}

const resetFlows = 1000

func reset(seed uint64, x int) ([]float64, error) {
	servers := pool(seed, 48)
	left, removed := without(servers, shuffled(seed, 48), x)
	var extra []float64
	for choices := 1; choices <= 2; choices++ {
		before, err := table.Build(servers, 4096, choices)
		if err != nil {
			return nil, err
		}
		after, err := table.Build(left, 4096, choices)
		if err != nil {
			return nil, err
		}
		lost := 0
		for flow, server := range place(before, seed) {
			now := after.Bucket(flow.bucket)
			if !removed[server] && !slices.Contains(now, server) {
				lost++
			}
		}
		extra = append(extra, 100*float64(lost)/resetFlows)
	}
	return extra, nil
}

type longFlow struct{ number, bucket int }

// place lets flows arrive that never end: the first of two takes one while it
// has less than 8.
func place(t *table.Table, seed uint64) map[longFlow]uint16 {
	rng := rand.New(rand.NewPCG(seed, 8))
	busy := make([]uint32, 48)
	accept := policy.Acceptor{Acceptance: topo.Static, Threshold: 8}
	flows := map[longFlow]uint16{}
	for i := range resetFlows {
		flow := longFlow{i, t.Index(rng.Uint64())}
		list := t.Bucket(flow.bucket)
		server := list[len(list)-1]
		if accept.Offer(busy[list[0]]) {
			server = list[0]
		}
		busy[server]++
		flows[flow] = server
	}
	return flows
}
