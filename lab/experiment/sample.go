package experiment

import (
	"time"

	"proffer/lab/stats"
)

const sampleEvery = 50 * time.Millisecond

// Loads are the servers' loads at sampled instants of a run.
type Loads struct {
	Seconds  []float64 // since the run's start
	Busy     []float64 // requests in hand, mean over the servers
	Fairness []float64 // Jain's index of them
}

type sampler struct {
	quit  chan struct{}
	ended chan Loads
}

// sample watches the servers until stop.
func sample(servers *Servers) *sampler {
	s := &sampler{quit: make(chan struct{}), ended: make(chan Loads)}
	go s.run(servers)
	return s
}

func (s *sampler) stop() Loads {
	close(s.quit)
	return <-s.ended
}

func (s *sampler) run(servers *Servers) {
	var l Loads
	start := time.Now()
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			s.ended <- l
			return
		case <-tick.C:
			l.add(time.Since(start).Seconds(), servers)
		}
	}
}

func (l *Loads) add(at float64, servers *Servers) {
	busy := make([]float64, len(servers.All))
	sum := 0.0
	for i, s := range servers.All {
		busy[i] = float64(s.Busy())
		sum += busy[i]
	}
	l.Seconds = append(l.Seconds, at)
	l.Busy = append(l.Busy, sum/float64(len(busy)))
	l.Fairness = append(l.Fairness, stats.Jain(busy))
}
