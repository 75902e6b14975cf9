package edge

import (
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/traffic"
	"proffer/topo"
)

// TestPrediction: real packets at a real node's core, which the LB predicts by the costs that the node
// measured at its start, and as it learns. PROFFER_PREDICTION=full is Figure 3, on a machine that does nothing
// else.
func TestPrediction(t *testing.T) {
	cost := []PredictedChain{{Name: "cost", Functions: []topo.Function{topo.Cost{Each: 100 * time.Microsecond}}}}
	all := []Prediction{{Chains: cost, Payloads: []int{18}, Loads: []float64{0.2}, Settle: 300 * time.Millisecond, For: 300 * time.Millisecond}}
	if os.Getenv("PROFFER_PREDICTION") == "full" {
		all = []Prediction{PaperPrediction(), QuickPrediction()}
	}
	for _, p := range all {
		steps := 0
		all, err := p.Run(t.Context(), func(farmrun.Step) { steps++ })
		if err != nil {
			t.Fatal(err)
		}
		rows := all.Rows
		t.Logf("unclaimed: %v", all.Unclaimed)
		if want := len(p.Chains) * len(p.Payloads) * len(p.Loads); len(rows)+len(all.Unclaimed) != want || steps != 2*want {
			t.Errorf("%d rows after %d steps, want %d", len(rows), steps, want)
		}
		for _, r := range rows {
			t.Logf("%-26s %5d bytes %7.0f/s measured %5.1f %% start %+5.2f learned %+5.2f points",
				r.Chain, r.Payload, r.Rate, 100*r.Measured, 100*(r.Started-r.Measured), 100*(r.Learned-r.Measured))
			if r.Rate == 0 || r.Measured == 0 || r.Started == 0 || r.Learned == 0 {
				t.Errorf("%s with %d bytes: nothing was measured or predicted: %+v", r.Chain, r.Payload, r)
			}
		}
		for _, by := range []struct {
			name string
			of   func(PredictionRow) float64
		}{{"start", PredictionRow.ByStart}, {"learned", PredictionRow.AsLearned}} {
			mean, most := PredictionErrors(rows, by.of)
			t.Logf("%s: %.2f points off on average, %.2f at most", by.name, mean, most)
		}
	}
}

// TestPredictionErrors: in points, on average and at most.
func TestPredictionErrors(t *testing.T) {
	rows := []PredictionRow{{Measured: 0.5, Learned: 0.51, Started: 0.5}, {Measured: 0.5, Learned: 0.47, Started: 0.6}}
	mean, most := PredictionErrors(rows, PredictionRow.AsLearned)
	if math.Abs(mean-2) > 1e-9 || math.Abs(most-3) > 1e-9 {
		t.Errorf("errors %v on average and %v at most, want 2 and 3", mean, most)
	}
	if mean, most = PredictionErrors(rows, PredictionRow.ByStart); math.Abs(mean-5) > 1e-9 || math.Abs(most-10) > 1e-9 {
		t.Errorf("errors %v on average and %v at most, want 5 and 10", mean, most)
	}
}

// TestPredictionSums: a row is the averages of its ticks by their time, and how far their loads spread.
func TestPredictionSums(t *testing.T) {
	s := predictedLoads{}
	s.add(predictedTick{elapsed: 3 * time.Second, measured: 0.4, learned: 0.5, started: 0.5, packets: 300, seen: 300})
	s.add(predictedTick{elapsed: time.Second, measured: 0.8, learned: 0.5, started: 0.5, packets: 100, seen: 100})
	row, err := s.row()
	want := PredictionRow{Rate: 100, Measured: 0.5, Spread: math.Sqrt(0.03), Learned: 0.5, Started: 0.5}
	if math.Abs(row.Spread-want.Spread) < 1e-9 {
		row.Spread = want.Spread
	}
	if err != nil || row != want {
		t.Errorf("%+v, %v; want %+v", row, err, want)
	}
}

// TestPredictionLost: a row is claimed if the core saw the packets, but for those on the way.
func TestPredictionLost(t *testing.T) {
	for seen, claimed := range map[uint64]bool{100_000: true, 99_810: true, 99_790: false, 0: false} {
		s := predictedLoads{}
		s.add(predictedTick{elapsed: time.Second, packets: 100_000, seen: seen})
		if _, err := s.row(); errors.Is(err, traffic.ErrLate) == claimed {
			t.Errorf("the core saw %d of 100,000: %v", seen, err)
		}
	}
}
