package edge

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"proffer/api"
	"proffer/lab/tables"
)

// TestEdgeDemoPredicts: where bursts are in step with the samples, the tick of a sample has a load of its own;
// the table and the picture have the mean of all ticks, which is the measured load.
func TestEdgeDemoPredicts(t *testing.T) {
	r := &DemoReport{experiment: Demo{For: time.Second}}
	load, weight, flows := 0.9, 1.0, uint64(3)
	for i := range 5 { // a burst of 500 packets of 100 µs each 250 ms: a load of .2
		at, n := time.Duration(i)*demoEvery, uint64(500*i)
		r.samples = append(r.samples, sample{
			seconds: at.Seconds(), at: []time.Duration{at}, weights: []float64{weight}, predicted: []float64{load}, packets: []uint64{n},
			core: []api.VirtualStatus{{At: int64(at), Busy: int64(n) * int64(demoCost), Served: n}},
		})
	}
	lb := api.Status{Edge: &api.EdgeStatus{Cores: []api.CoreStatus{{Node: "n1", Load: &load, Weight: &weight, Flows: &flows, Packets: 2000}}}}
	for i, s := range r.samples[1:] {
		c := r.view(lb, r.samples[i], s).Cores[0]
		near(t, "predicted", c.Predicted, 0.2, 1e-9)
		near(t, "measured", c.Measured, 0.2, 1e-9)
	}
	r.Cores = r.view(lb, r.samples[0], r.samples[4]).Cores
	dir := t.TempDir()
	if _, err := tables.Save(dir, r.Files()...); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "edge.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, row := range rows[1:] {
		if i := slices.Index(row, "predicted"); i >= 0 {
			value, err := strconv.ParseFloat(row[i+2], 64)
			if seen++; err != nil || math.Abs(value-20) > 1e-6 {
				t.Errorf("the picture has %v, %v; want 20: %v", value, err, row)
			}
		}
	}
	if seen != 4 {
		t.Errorf("%d predictions in %v", seen, rows)
	}
}
