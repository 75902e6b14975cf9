package sim

import (
	"time"
)

// Snapshot is the state at a probe. Its slices are used again for the next one.
type Snapshot struct {
	Now     time.Duration
	Busy    []int32     // of each server: requests accepted and not finished
	Left    []float64   // of each server: ms that its cores need for their requests and for those on their way
	Weights [][]float64 // lsq, sed, learned: of each LB and server; else nil
	Scores  [][]float64 // and the LB's scores, (flows + 1) / weight
	Gain    []float64   // learned: the Kalman gain of each LB's last step
}

// scorer is a policy that ranks servers by weight.
type scorer interface {
	weighed() [][]float64
	scored() [][]float64
}

func (e *Engine) newProbe() func() {
	n := len(e.servers)
	s := Snapshot{Busy: make([]int32, n), Left: make([]float64, n)}
	return func() {
		s.Now = time.Duration(e.now)
		for i := range e.servers {
			cpu := &e.stations[i]
			cpu.advance(e.now)
			s.Busy[i] = e.servers[i].taken
			s.Left[i] = (cpu.work() + e.servers[i].pending) / e.farm.Servers[i].Power() / 1e6
		}
		if p, ok := e.chooser.(scorer); ok {
			s.Weights, s.Scores = p.weighed(), p.scored()
		}
		if p, ok := e.chooser.(interface{ gains() []float64 }); ok {
			s.Gain = p.gains()
		}
		e.work.Probe(s)
	}
}
