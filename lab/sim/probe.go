package sim

import "time"

// Snapshot is the state at a probe. Its slices are used again for the next.
type Snapshot struct {
	Now     time.Duration
	Busy    []int32     // of each server: requests accepted and not finished
	Left    []float64   // of each server: ms that its cores need for their requests and for those on their way
	Weights [][]float64 // lsq, sed, learned: of each LB and server; else nil
	Scores  [][]float64 // and the LB's scores, (flows + 1) / weight
	Gain    []float64   // learned: the Kalman gain of each LB's last step
}

// Scorer is a policy that ranks servers by weight.
type Scorer interface {
	Weighed() [][]float64
	Scored() [][]float64
}

func (e *Engine) newProbe() func() {
	n := len(e.Servers)
	s := Snapshot{Busy: make([]int32, n), Left: make([]float64, n)}
	return func() {
		s.Now = time.Duration(e.Instant)
		for i := range e.Servers {
			cpu := &e.Stations[i]
			cpu.Advance(e.Instant)
			s.Busy[i] = e.Servers[i].Taken
			s.Left[i] = (cpu.Work() + e.Servers[i].Pending) / e.Farm.Servers[i].Power() / 1e6
		}
		if p, ok := e.Chooser.(Scorer); ok {
			s.Weights, s.Scores = p.Weighed(), p.Scored()
		}
		if p, ok := e.Chooser.(interface{ Gains() []float64 }); ok {
			s.Gain = p.Gains()
		}
		e.Work.Probe(s)
	}
}
