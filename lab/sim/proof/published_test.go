package proof

import (
	"fmt"
	"math"
	"testing"
	"time"

	"proffer/lab/sim"
	"proffer/lab/sim/policies"
)

// row is a farm, a utilisation, and the numbers that an independent simulation
// found for each policy; mean 0: only the p90 is given.
type row struct {
	farm string
	lbs  int
	rho  float64
	want map[string]figure
}

type figure struct{ mean, p90 float64 } // ms

var independent = []row{
	{"A", 2, 0.61, map[string]figure{
		"single": {305, 716}, "rr": {229, 528}, "wrr-feedback": {225, 520}, "hunt:static:4": {248, 577},
		"hunt:static:8": {291, 685}, "hunt:dynamic": {227, 524}, "jsq": {194, 442}}},
	{"A", 2, 0.71, map[string]figure{
		"single": {385, 917}, "rr": {266, 619}, "wrr-feedback": {252, 588}, "hunt:static:4": {269, 626},
		"hunt:static:8": {337, 807}, "hunt:dynamic": {252, 583}, "jsq": {194, 443}}},
	{"A", 2, 0.87, map[string]figure{
		"single": {760, 1898}, "rr": {455, 1099}, "wrr-feedback": {350, 843}, "hunt:static:4": {335, 786},
		"hunt:static:8": {452, 1089}, "hunt:dynamic": {351, 826}, "jsq": {200, 457}}},
	{"A", 2, 0.95, map[string]figure{
		"single": {1591, 4253}, "rr": {927, 2358}, "wrr-feedback": {478, 1167}, "hunt:static:4": {472, 1112},
		"hunt:static:8": {566, 1350}, "hunt:dynamic": {525, 1243}, "jsq": {230, 528}}},
	{"hom", 4, 0.9, guidedTable(1504, 1510, 1215, 1350, 1318, 1159)},
	{"hom", 4, 0.95, guidedTable(1836, 1961, 1358, 1572, 1527, 1189)},
	{"c1:2", 4, 0.9, guidedTable(1399, 1334, 1484, 1214, 1194, 1156)},
	{"c1:2", 4, 0.95, guidedTable(1652, 1618, 1559, 1326, 1286, 1173)},
	{"c1:2", 8, 0.9, guidedTable(1471, 1520, 1484, 1253, 1215, 1156)},
	{"c1:4", 4, 0.9, guidedTable(1278, 1249, 2011, 1167, 1162, 1154)},
	{"v1:2", 4, 0.9, guidedTable(1150, 1156, 849, 874, 844, 828)},
	{"A", 4, 0.9, guidedTable(535, 550, 468, 496, 484, 450)},
}

// guidedTable: the column `learned` is that of completed flows' durations in
// a reservoir of 128.
func guidedTable(learned, jiq, jsq, four, eight, oraclef float64) map[string]figure {
	return map[string]figure{
		"learned:completed": {0, learned}, "jiq": {0, jiq}, "jsq": {0, jsq},
		"guided": {0, four}, "guided:8": {0, eight}, "oraclef": {0, oraclef},
	}
}

func (r row) make(t *testing.T) sim.Farm {
	f := sim.FarmA()
	if r.farm != "A" {
		var err error
		if f, err = sim.FarmB(r.farm); err != nil {
			t.Fatal(err)
		}
	}
	f.LBs = r.lbs
	return f
}

// TestPublished: the independent simulation's tables, 10 seeds: means within 3 % and p90 within
// 5 % up to ρ = .9. Above, ten runs of 80,000 requests scatter by that much
// themselves: the load that they happen to draw differs by .2 %, which is a
// fiftieth of what is left idle at .95; 10 % is allowed there.
func TestPublished(t *testing.T) {
	for _, r := range independent {
		for name, want := range r.want {
			t.Run(fmt.Sprintf("%s/M=%d/%v/%s", r.farm, r.lbs, r.rho, name), func(t *testing.T) {
				t.Parallel()
				got := average(t, r.make(t), name, r.rho)
				near, far := 0.03, 0.05
				if r.rho > 0.9 {
					near, far = 0.10, 0.10
				}
				if want.mean > 0 && math.Abs(got.mean/want.mean-1) > near || math.Abs(got.p90/want.p90-1) > far {
					t.Errorf("mean %.0f, p90 %.0f; published %.0f and %.0f (seeds 1 to 10)", got.mean, got.p90, want.mean, want.p90)
				}
			})
		}
	}
}

func average(t *testing.T, f sim.Farm, name string, rho float64) figure {
	return averageOf(t, 10, f, name, rho)
}

func averageOf(t *testing.T, seeds uint64, f sim.Farm, name string, rho float64) (got figure) {
	p := mustParse(t, name)
	for seed := uint64(1); seed <= seeds; seed++ {
		r := mustRun(t, f, p, f.Load(rho), seed)
		got.mean += r.Mean / float64(seeds)
		got.p90 += r.P90 / float64(seeds)
	}
	return got
}

// TestLearnedAgainstItsKin is HLB §VI-A3: under 88.5 % on c1:2 the p90 of
// learned is 24.64 % under lsq's and 25.59 % under sed's; the independent
// simulation found 24 ± 3 % with ages and 36 % with durations of completed flows.
func TestLearnedAgainstItsKin(t *testing.T) {
	t.Parallel()
	f, err := sim.FarmB("c1:2")
	if err != nil {
		t.Fatal(err)
	}
	const rho = 0.885
	lsq, sed := average(t, f, "lsq", rho).p90, average(t, f, "sed", rho).p90
	for name, want := range map[string]float64{"learned:ages": 0.24, "learned:completed": 0.36} {
		got := average(t, f, name, rho).p90
		for kin, p90 := range map[string]float64{"lsq": lsq, "sed": sed} {
			if less := 1 - got/p90; math.Abs(less-want) > 0.03 {
				t.Errorf("p90 of %s is %.1f %% under %s's, want %.0f ± 3 (seeds 1 to 10)", name, 100*less, kin, 100*want)
			}
		}
	}
}

// TestCorrections holds the corrections of docs/design/guided.md: oracle counts
// the new request's own work (mean 584 ms on c1:2 at .9, where 721 comes without),
// a server's second token stands behind newer ones (hops 1.034 on farm A at .61,
// where 1.073 come without), and single at .95 has a mean of 1951 ms once the
// farm is warm.
func TestCorrections(t *testing.T) {
	t.Parallel()
	f, err := sim.FarmB("c1:2")
	if err != nil {
		t.Fatal(err)
	}
	if got := average(t, f, "oracle", 0.9).mean; math.Abs(got/584-1) > 0.03 {
		t.Errorf("oracle on c1:2 at .9: mean %.0f ms, want 584 ± 3 %% (seeds 1 to 10)", got)
	}
	hops := 0.0
	for seed := uint64(1); seed <= 4; seed++ {
		hops += mustRun(t, sim.FarmA(), mustParse(t, "guided"), sim.FarmA().Load(0.61), seed).Hops / 4
	}
	if math.Abs(hops-1.034) > 0.005 {
		t.Errorf("guided on farm A at .61: %.3f hops, want 1.034 (seeds 1 to 4)", hops)
	}
	warm := sim.FarmA()
	warm.Default.Requests, warm.Default.From, warm.Default.To = 800_000, 0.1, 1
	if got := average(t, warm, "single", 0.95).mean; math.Abs(got/1951-1) > 0.05 {
		t.Errorf("single on a warm farm A at .95: mean %.0f ms, want 1951 ± 5 %% (seeds 1 to 10)", got)
	}
}

// TestGaugeFeelsBackground: work in the background that takes half of a server
// doubles the service time that its gauge shows.
func TestGaugeFeelsBackground(t *testing.T) {
	f := queueOf(sim.Server{Cores: 2, Discipline: sim.FIFO}, sim.Deterministic(10*time.Millisecond))
	f.Servers = append(f.Servers, f.Servers[0], f.Servers[0], f.Servers[0])
	f.Background = []sim.Background{{Servers: []int{1}, Cores: 1}}
	e := sim.NewEngine(f, mustParse(t, "guided"), f.Load(0.3), 1)
	e.Loop()
	for i, want := range []float64{10e6, 20e6, 10e6, 10e6} {
		if got := e.Offerer.(*policies.Guided).Gauges[i].Mean; math.Abs(got-want) > 1 {
			t.Errorf("server %d: the gauge shows %v ns, want %v", i, got, want)
		}
	}
}
