package edgesim

import (
	"math"
	"testing"
	"time"
)

// TestFewFlowsAreLevelled: the loads of few flows are noisy, and quotients of them are
// off on average. Figure 4 with packets a hundred times dearer, and mice that begin by chance: the
// elephant's core has as much as the other one all the same.
func TestFewFlowsAreLevelled(t *testing.T) {
	for _, share := range []float64{0.27, 0.47} {
		const runs = 4
		off := 0.0
		for seed := range uint64(runs) {
			f := Farm{Servers: nodes(2, 100*chain), Ring: ring}
			traffic := HeterogeneousTraffic(share, 100*chain)
			traffic.For, traffic.WarmUp = 15*time.Second, 5*time.Second
			sum, n := 0.0, 0
			for _, s := range run(t, f, levelled, traffic, seed).Samples {
				if s.At > traffic.WarmUp {
					sum += s.Measured[0] - s.Measured[1]
					n++
				}
			}
			off += sum / float64(n) / runs
		}
		t.Logf("elephant of %v: its core has %+.4f more than the other", share, off)
		if math.Abs(off) > 0.01 {
			t.Errorf("elephant of %v: its core has %+.3f more than the other", share, off)
		}
	}
}
