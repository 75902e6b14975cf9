package trace

import (
	"math"
	"slices"
	"testing"
	"time"
)

// TestVaryingIsPoissonAtOneRate: however it is cut.
func TestVaryingIsPoissonAtOneRate(t *testing.T) {
	got := Varying(seed, []Stretch{{10 * time.Second, 100}, {0, 9}, {20 * time.Second, 100}}, 20*time.Millisecond)
	want := Poisson(seed, len(got)+1, 100, 20*time.Millisecond)
	if want[len(got)].At < 30*time.Second {
		t.Errorf("an arrival at %v is missing", want[len(got)].At)
	}
	for i, a := range got {
		if (a.At-want[i].At).Abs() > time.Microsecond || a.Service != want[i].Service {
			t.Fatalf("arrival %d (seed %d): %v, want %v", i, seed, a, want[i])
		}
	}
}

// TestVaryingHasEachRate: as many arrivals in each stretch as its rate gives, and all in order.
func TestVaryingHasEachRate(t *testing.T) {
	stretches := []Stretch{{50 * time.Second, 100}, {50 * time.Second, 400}, {50 * time.Second, 0}, {50 * time.Second, 200}}
	arrivals := Varying(seed, stretches, 20*time.Millisecond)
	if !slices.IsSortedFunc(arrivals, func(a, b Arrival) int { return int(a.At - b.At) }) {
		t.Error("they are not in order")
	}
	var counts [4]float64
	for _, a := range arrivals {
		counts[int(a.At/(50*time.Second))]++
	}
	for i, s := range stretches {
		want := s.Rate * 50
		if math.Abs(counts[i]-want) > 4*math.Sqrt(want) {
			t.Errorf("stretch %d (seed %d): %v arrivals, want %v", i, seed, counts[i], want)
		}
	}
}
