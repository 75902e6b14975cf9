package proof

import (
	"fmt"
	"math"
	"testing"
	"time"

	"proffer/lab/sim"
	"proffer/lab/sim/learned"
)

// anchors are the numbers of an independent study of the policies of others beside
// guided, mean and p90 in ms: of each policy on the farms of anchorFarms.
var anchors = map[string][7]figure{
	"prequal:inflight":  {{234, 534}, {345, 810}, {438, 1076}, {862, 1883}, {1031, 2252}, {1216, 2631}, {1124, 2266}},
	"prequal:perfect":   {{237, 538}, {360, 839}, {454, 1112}, {716, 1524}, {870, 1844}, {1044, 2177}, {1124, 2258}},
	"c3":                {{203, 465}, {293, 688}, {423, 1008}, {680, 1528}, {954, 2093}, {2790, 6638}, {726, 1612}},
	"learned:completed": {{211, 483}, {290, 677}, {366, 869}, {650, 1402}, {829, 1712}, {1082, 2175}, {}},
	"guided":            {{202, 461}, {224, 511}, {231, 529}, {534, 1211}, {615, 1352}, {670, 1445}, {690, 1545}},
	"jsq":               {{199, 455}, {199, 455}, {199, 455}, {659, 1481}, {659, 1482}, {658, 1481}, {585, 1336}},
	"oraclef":           {{195, 444}, {195, 444}, {195, 443}, {504, 1156}, {504, 1156}, {504, 1156}, {530, 1185}},
}

var anchorFarms = [7]row{
	{"A", 2, 0.87, nil}, {"A", 32, 0.87, nil}, {"A", 128, 0.87, nil},
	{"c1:2", 4, 0.9, nil}, {"c1:2", 32, 0.9, nil}, {"c1:2", 128, 0.9, nil}, {"hom", 4, 0.95, nil},
}

// TestAnchors: mean and p90 within 5 % of the study's, within 10 % at ρ = .95, where ten
// runs scatter by that much. Five of its policies are others' and have definitions with
// gaps; docs/design/simulator.md states how they are filled.
func TestAnchors(t *testing.T) {
	for name, want := range anchors {
		for i, r := range anchorFarms {
			if want[i].mean == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s/M=%d/%v", name, r.farm, r.lbs, r.rho), func(t *testing.T) {
				t.Parallel()
				near := 0.05
				if r.rho > 0.9 {
					near = 0.10
				}
				got := averageOf(t, 4, r.make(t), name, r.rho)
				mean, p90 := got.mean/want[i].mean-1, got.p90/want[i].p90-1
				t.Logf("mean %.0f (%+.1f %%), p90 %.0f (%+.1f %%)", got.mean, 100*mean, got.p90, 100*p90)
				if math.Abs(mean) > near || math.Abs(p90) > near {
					t.Errorf("mean %.0f, p90 %.0f; the study has %.0f and %.0f (seeds 1 to 4)", got.mean, got.p90, want[i].mean, want[i].p90)
				}
			})
		}
	}
}

// TestHerd: where a flow counts from its first data packet only, the flows of a round
// trip of the client meet the same least score. The p90 of an independent study
// within 10 %.
func TestHerd(t *testing.T) {
	t.Parallel()
	f, err := sim.FarmB("c1:2")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rtt         time.Duration
		syn, atData float64 // p90 in ms
	}{{0, 1572, 1784}, {20 * time.Millisecond, 1603, 3240}, {100 * time.Millisecond, 1779, 7725}} {
		f.ClientRTT = sim.Deterministic(c.rtt)
		for name, want := range map[string]float64{"learned:ages": c.syn, "learned:ages:literal": c.atData} {
			if got := averageOf(t, 4, f, name, 0.885).p90; math.Abs(got/want-1) > 0.10 {
				t.Errorf("%s with a round trip of %v: p90 %.0f ms, the study has %.0f (seeds 1 to 4)", name, c.rtt, got, want)
			}
		}
	}
}

// TestFlood: SYNs with forged sources, five times as many as requests, hide the flows in
// progress unless embryonic flows are left out. A study has a p90 of 5378 ms without
// that and 1887 ms with it, where 1572 ms is without a flood.
func TestFlood(t *testing.T) {
	t.Parallel()
	f, err := sim.FarmB("c1:2")
	if err != nil {
		t.Fatal(err)
	}
	calm := averageOf(t, 4, f, "learned:ages", 0.885).p90
	f.Flood = sim.Flood{Times: 5, Expires: 10 * time.Second}
	for name, want := range map[string]float64{"learned:ages": 1887, "learned:ages:syn": 5378} {
		if got := averageOf(t, 4, f, name, 0.885).p90; math.Abs(got/want-1) > 0.15 || name == "learned:ages" && got > 1.25*calm {
			t.Errorf("%s in a flood: p90 %.0f ms, the study has %.0f; %.0f without a flood (seeds 1 to 4)", name, got, want, calm)
		}
	}
}

// TestFloodIsNoticed: the LB leaves embryonic flows out during a flood and counts them
// again after it; a farm that no SYN floods never sees one.
func TestFloodIsNoticed(t *testing.T) {
	f := smallFarm()
	f.Default.Requests = 3000
	f.Flood = sim.Flood{Times: 5, Expires: time.Second}
	for _, times := range []float64{0, 5} {
		f.Flood.Times = times
		e := sim.NewEngine(f, mustParse(t, "learned"), f.Load(0.8), 1)
		noticed := 0
		for e.Step() {
			for _, f := range e.Chooser.(*learned.Watchful).Flood {
				if f.Is() {
					noticed++
				}
			}
		}
		if (noticed > 0) != (times > 0) {
			t.Errorf("a flood of %v times the requests: noticed at %d events (seed 1)", times, noticed)
		}
		p := e.Chooser.(*learned.Watchful)
		p.Flood[0].Count(2000, 1900)
		if p.Flood[0].Step() {
			t.Error("a flood that is over is still seen")
		}
		for lb, flows := range p.Alive {
			for server, n := range flows {
				if n < 0 || n > 3 { // some FINs are on their way
					t.Errorf("LB %d ends with %v flows at server %d (seed 1)", lb, n, server)
				}
			}
		}
	}
}

// TestOracleAtEqualSpeeds: where all servers have one core of one speed, the least work is
// the earliest finish.
func TestOracleAtEqualSpeeds(t *testing.T) {
	t.Parallel()
	f, err := sim.FarmB("hom")
	if err != nil {
		t.Fatal(err)
	}
	for _, rho := range []float64{0.7, 0.9, 0.95} {
		oracle, bound := average(t, f, "oracle", rho), average(t, f, "oraclef", rho)
		if math.Abs(oracle.mean/bound.mean-1) > 0.01 || math.Abs(oracle.p90/bound.p90-1) > 0.01 {
			t.Errorf("at %v: oracle has %.1f and %.1f ms, oraclef %.1f and %.1f (seeds 1 to 10)", rho, oracle.mean, oracle.p90, bound.mean, bound.p90)
		}
	}
}
