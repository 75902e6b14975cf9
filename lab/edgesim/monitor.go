package edgesim

import "math/rand/v2"

// monitor is the state of an LB that asks its servers: the last report of each
// core. Servers report every Period, each at an instant of its own, so the compared
// reports are up to a Period old and of different instants.
type monitor struct {
	engine *engine
	noise  float64
	rng    *rand.Rand
	at     []int64 // ns, of each server's next report
	seen   []int64 // ns of work, at each core's last one
	loads  []float64
}

func newMonitor(e *engine, p Policy, seed uint64) *monitor {
	m := &monitor{engine: e, noise: p.Noise, rng: rand.New(rand.NewPCG(seed, noiseStream)),
		seen: make([]int64, len(e.cores)), loads: make([]float64, len(e.cores))}
	phases := rand.New(rand.NewPCG(seed, phaseStream))
	for range e.farm.Servers {
		m.at = append(m.at, 1+phases.Int64N(int64(Period)))
	}
	return m
}

func (m *monitor) due() int64 {
	first := int64(never)
	for _, at := range m.at {
		first = min(first, at)
	}
	return first
}

// listen takes the reports that are due now.
func (m *monitor) listen(now int64) {
	for server, at := range m.at {
		if at != now {
			continue
		}
		for i := range m.engine.cores {
			if m.engine.cores[i].server == server {
				m.report(now, i)
			}
		}
		m.at[server] += int64(Period)
	}
}

func (m *monitor) report(now int64, core int) {
	busy := m.engine.cores[core].busy(now)
	share := float64(busy-m.seen[core]) / float64(min(now, int64(Period))) // the first one is short
	m.seen[core] = busy
	m.loads[core] = min(1, max(0, share+float64(m.noise*m.rng.NormFloat64())))
}
