package proof

import (
	"math"
	"testing"
	"time"
)

// TestWindowOfTime: the requests that count are those of rows that came in it.
func TestWindowOfTime(t *testing.T) {
	f := smallFarm()
	f.Penalty = time.Second
	w := f.Load(1.1)
	w.From, w.To, w.After, w.Until = 0.1, 1, 400*time.Millisecond, 900*time.Millisecond
	r := mustRun(t, f, mustParse(t, "rr"), w, 2)
	counted, refused, sum := 0, 0, 0.0
	for i, row := range r.Rows {
		if i < 70 || row.At < w.After || row.At >= w.Until {
			continue
		}
		counted++
		sum += row.FCT.Seconds() * 1000
		if row.Refused {
			refused++
		}
	}
	if counted < 100 || counted > 600 || refused == 0 {
		t.Fatalf("%d requests of the window, %d refused: they show nothing (seed 2)", counted, refused)
	}
	if r.Counted != counted || r.Refused != refused || len(r.Latencies) != counted || math.Abs(r.Mean-sum/float64(counted)) > 1e-6 {
		t.Errorf("%d count, %d of them refused, mean %v; the rows have %d, %d and %v (seed 2)", r.Counted, r.Refused, r.Mean, counted, refused, sum/float64(counted))
	}
}

// TestCountsOfServers: accepted, passed on, refused and times of each server are those of
// the rows, or of the offers.
func TestCountsOfServers(t *testing.T) {
	f := smallFarm()
	for _, name := range []string{"hunt:static:1", "guided", "jsq"} {
		r := mustRun(t, f, mustParse(t, name), f.Load(1.2), 4)
		accepted, refused := make([]int, len(f.Servers)), make([]int, len(f.Servers))
		sum, offers := make([]float64, len(f.Servers)), 0
		for _, row := range r.Rows {
			offers += row.Hops
			if row.Refused {
				refused[row.Server]++
				continue
			}
			accepted[row.Server]++
			sum[row.Server] += row.FCT.Seconds() * 1000
		}
		passed := 0
		for i := range f.Servers {
			passed += r.PassedOn[i]
			if r.Accepted[i] != accepted[i] || r.Rejected[i] != refused[i] || math.Abs(r.Times[i]-sum[i]/float64(accepted[i])) > 1e-6 {
				t.Errorf("%s, server %d: %d accepted, %d refused, mean %v; the rows have %d, %d and %v (seed 4)",
					name, i, r.Accepted[i], r.Rejected[i], r.Times[i], accepted[i], refused[i], sum[i]/float64(accepted[i]))
			}
		}
		if want := offers - len(r.Rows); passed != want || (name != "jsq") != (passed > 0) {
			t.Errorf("%s: %d offers were passed on, want %d (seed 4)", name, passed, want)
		}
	}
}
