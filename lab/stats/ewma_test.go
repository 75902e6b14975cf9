package stats

import (
	"math"
	"testing"
	"time"
)

func TestEWMAByHand(t *testing.T) {
	var e EWMA
	if got := e.Add(5*time.Second, 10); got != 10 {
		t.Fatalf("first point: got %v, want it as it is", got)
	}
	got := e.Add(7*time.Second, 0)
	if want := 10 * math.Exp(-2); math.Abs(got-want) > 1e-12 {
		t.Errorf("2 s later: got %v, want %v", got, want)
	}
}

// A step that is seen through many points is forgotten as through one.
func TestEWMAForgetsWithTimeNotWithPoints(t *testing.T) {
	few, many := EWMA{Memory: 200 * time.Millisecond}, EWMA{Memory: 200 * time.Millisecond}
	few.Add(0, 1)
	many.Add(0, 1)
	want := few.Add(time.Second, 0)
	var got float64
	for ms := 1; ms <= 1000; ms++ {
		got = many.Add(time.Duration(ms)*time.Millisecond, 0)
	}
	if math.Abs(got-want) > 1e-12 || math.Abs(want-math.Exp(-5)) > 1e-12 {
		t.Errorf("1000 points: %v, 1 point: %v, want both e⁻⁵", got, want)
	}
}
