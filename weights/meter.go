package weights

import "time"

// Costs of one packet in nanoseconds, by core and service. They differ between
// servers, so each measures its own when it starts.
type Costs [][]float64

// Meter predicts loads from packet counters (EdgeBalance §3), which are samples
// for a PID:
//
//	Predict_CPU[core] = Σ over services of Cost[core][service] · Rate[core][service]
//
// Servers are not asked: their polling cores report 100 % at any load. The
// paper's <server i, core j> is one index here.
type Meter struct {
	costs Costs
	sent  [][]uint64
	loads []float64
	last  time.Duration
}

// NewMeter starts at time 0 with counters of zero.
func NewMeter(costs Costs) *Meter {
	m := &Meter{costs: costs, sent: make([][]uint64, len(costs)), loads: make([]float64, len(costs))}
	for i := range costs {
		m.sent[i] = make([]uint64, len(costs[i]))
	}
	return m
}

// Loads takes the monotonic time and the packets sent so far to each core and
// service, and returns the load of each core since the last call (1: a core that
// works all the time; more if more was sent than it can do), valid until the
// next. If time did not advance, the loads and the counters remembered stay as
// they are. A counter that went back was set to zero in between, so its whole
// value came since.
func (m *Meter) Loads(now time.Duration, packets [][]uint64) []float64 {
	elapsed := now - m.last
	if elapsed <= 0 {
		return m.loads
	}
	m.last = now
	for core, services := range packets {
		work := 0.0
		for service, n := range services {
			sent := n - m.sent[core][service]
			if n < m.sent[core][service] {
				sent = n
			}
			work += float64(m.costs[core][service] * float64(sent))
			m.sent[core][service] = n
		}
		m.loads[core] = work / float64(elapsed)
	}
	return m.loads
}
