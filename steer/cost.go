package steer

import "time"

// Costs of one packet in nanoseconds, by core and service. They differ between
// servers, so each measures its own when it starts.
type Costs [][]float64

// Meter predicts loads from packet counters (EdgeBalance §3):
//
//	Predict_CPU[core] = Σ over services of Cost[core][service] · Rate[core][service]
type Meter struct {
	costs Costs
	last  [][]uint64
}

// NewMeter starts with counters of zero.
func NewMeter(costs Costs) *Meter {
	m := &Meter{costs: costs, last: make([][]uint64, len(costs))}
	for i := range costs {
		m.last[i] = make([]uint64, len(costs[i]))
	}
	return m
}

// Loads writes the load of every core since the last call into loads. elapsed is
// the time since then; of none, loads stay as they are and only the counters are
// remembered. A counter that went back was set to zero in between, so what it
// shows came since.
func (m *Meter) Loads(loads []float64, elapsed time.Duration, packets [][]uint64) {
	for core, services := range packets {
		work := 0.0
		for service, n := range services {
			sent := n - m.last[core][service]
			if n < m.last[core][service] {
				sent = n
			}
			work += float64(m.costs[core][service] * float64(sent))
			m.last[core][service] = n
		}
		if elapsed > 0 {
			loads[core] = work / float64(elapsed)
		}
	}
}
