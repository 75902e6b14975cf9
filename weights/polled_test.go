package weights

import (
	"math"
	"slices"
	"testing"
)

// TestAdaptive: weights are cores / (1 + requests in hand).
func TestAdaptive(t *testing.T) {
	p := NewAdaptive(3)
	if got := p.Weights(0); !slices.Equal(got, []float64{1, 1, 1}) {
		t.Errorf("without a report: %v, want all alike", got)
	}
	p.Observe(0, Sample{Server: 0, Report: &Report{Busy: 3, Workers: 32, Cores: 2}})
	p.Observe(0, Sample{Server: 2, Report: &Report{Busy: 0, Workers: 32, Cores: 4}})
	if got := p.Weights(0); !slices.Equal(got, []float64{0.5, 2.25, 4}) {
		t.Errorf("%v, want those of the first and the last, and their average between", got)
	}
	p.Lose(2)
	if got := p.Weights(0); !slices.Equal(got, []float64{0.5, 0.5, 0.5}) || p.Known(2) || !p.Known(0) {
		t.Errorf("%v after a report was lost, want the average of the others", got)
	}
	p.Observe(0, Sample{Server: 2, Report: &Report{Busy: 1, Workers: 32, Cores: 1}})
	next := NewAdaptive(2)
	next.Inherit(1, p, 0)
	if got := next.Weights(0); !slices.Equal(got, []float64{0.5, 0.5}) || next.Known(0) || !next.Known(1) {
		t.Errorf("%v inherited", got)
	}
}

// TestFeedback: weights are those of the paper, of 32 workers and of any other number alike, and never
// below a tenth.
func TestFeedback(t *testing.T) {
	p := NewFeedback(1)
	for busy, want := range map[float64]float64{0: 1, 8: 0.1 + 0.9*math.Exp(-0.5), 16: 0.1 + 0.9*math.Exp(-2), 32: 0.1 + 0.9*math.Exp(-8), 99: 0.1 + 0.9*math.Exp(-8)} {
		for _, workers := range []float64{32, 8} {
			p.Observe(0, Sample{Report: &Report{Busy: busy * workers / 32, Workers: workers, Cores: 2}})
			if got := p.Weights(0)[0]; math.Abs(got-want) > 1e-12 {
				t.Errorf("%v of %v workers busy: %v, want %v", busy*workers/32, workers, got, want)
			}
		}
	}
}
