package stats

import (
	"math"
	"testing"
)

func TestJain(t *testing.T) {
	for _, c := range []struct {
		name  string
		loads []float64
		want  float64
	}{
		{"alike", []float64{3, 3, 3, 3}, 1},
		{"one has all", []float64{0, 9, 0, 0}, 0.25},
		{"two to one", []float64{2, 1}, 0.9},
		{"idle", []float64{0, 0, 0}, 1},
		{"no servers", nil, 1},
	} {
		if got := Jain(c.loads); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
