package farmrun

import (
	"time"

	"proffer/lab/stats"
)

const sampleEvery = 50 * time.Millisecond

// Loads are the servers' loads at sampled instants of a run.
type Loads struct {
	Seconds  []float64   // since the run's start
	Busy     []float64   // requests in hand, mean over the servers
	Fairness []float64   // Jain's index of them
	Servers  [][]float64 // requests in hand, a server
}

type Sampler struct {
	quit  chan struct{}
	ended chan Loads
}

// Sample watches the requests that the servers have in hand, until stop.
func Sample(busy func() []float64) *Sampler {
	s := &Sampler{quit: make(chan struct{}), ended: make(chan Loads)}
	go s.run(busy)
	return s
}

func (s *Sampler) Stop() Loads {
	close(s.quit)
	return <-s.ended
}

func (s *Sampler) run(busy func() []float64) {
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
			l.Add(time.Since(start).Seconds(), busy())
		}
	}
}

func (l *Loads) Add(at float64, busy []float64) {
	sum := 0.0
	for _, b := range busy {
		sum += b
	}
	l.Seconds = append(l.Seconds, at)
	l.Busy = append(l.Busy, sum/float64(len(busy)))
	l.Fairness = append(l.Fairness, stats.Jain(busy))
	l.Servers = append(l.Servers, busy)
}
