package peers

import (
	"testing"

	"proffer/lab/farmrun/farmtest"
)

func TestLatencyHolds(t *testing.T) {
	r := &LatencyReport{experiment: Latency{Connections: 3}, first: 3, second: 3}
	farmtest.Holds(t, "good", r.Holds(), "")
	r.second = 2
	farmtest.Holds(t, "otherwise", r.Holds(), "2 by their second")
}
