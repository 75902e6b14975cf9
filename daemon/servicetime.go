package daemon

import (
	"context"
	"sync"
	"time"

	"proffer/api"
	"proffer/control"
	"proffer/topo"
)

const (
	sampleEvery = 50 * time.Millisecond // the loads, if the services are few …
	perService  = 2 * time.Millisecond  // … or else so long for each
	coresEvery  = 5 * time.Second       // quotas and CPUs change while processes run
)

// speeds has the agent's knowledge of its services: their cores and service times.
type speeds struct {
	mu     sync.Mutex
	gauges map[topo.VIP]*control.Gauge
	cores  map[topo.VIP]float64
}

// of is the service time of a service; nil: it is not known yet.
func (s *speeds) of(vip topo.VIP) *api.ServiceTimeStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gauges[vip] == nil {
		return nil
	}
	speed, known := s.gauges[vip].Speed()
	if !known {
		return nil
	}
	return &api.ServiceTimeStatus{Mean: speed.Mean.Seconds(), Error: speed.Error, Answers: speed.Answers}
}

// cores is how many cores a service has: those of its processes, where they can be seen, and at most
// the configured number.
func (r *agent) cores(o *topo.Offering) float64 {
	r.speeds.mu.Lock()
	defer r.speeds.mu.Unlock()
	if cores, seen := r.speeds.cores[o.VIP]; seen {
		return min(cores, float64(o.Cores))
	}
	return float64(o.Cores)
}

// learn samples the loads, and looks at the cores, until ctx ends.
func (r *agent) learn(ctx context.Context) error {
	samples, stop := r.host.Clock.Tick(max(sampleEvery, time.Duration(len(r.now.Load().Services))*perService))
	defer stop()
	looks, stopLooks := r.host.Clock.Tick(coresEvery)
	defer stopLooks()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-samples:
			if err := r.sample(); err != nil {
				return err
			}
		case <-looks:
			r.lookAgain()
		}
	}
}

// sample gives the gauge of each service its load of now.
func (r *agent) sample() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	services := r.now.Load().Services
	gauges := map[topo.VIP]*control.Gauge{}
	for i := range services {
		o := &services[i]
		l, err := r.plane.Load(i)
		if err != nil {
			return err
		}
		cores := r.cores(o)
		r.speeds.mu.Lock()
		g := r.speeds.gauges[o.VIP]
		if g == nil {
			g = &control.Gauge{}
		}
		if l.Known {
			g.Observe(r.host.Clock.Now(), l.InService(cores), l.Answered)
		}
		gauges[o.VIP] = g
		r.speeds.mu.Unlock()
	}
	r.speeds.mu.Lock()
	defer r.speeds.mu.Unlock()
	r.speeds.gauges = gauges
	return nil
}

// lookAgain looks for the processes of a service that has none, and at the cores of all.
func (r *agent) lookAgain() {
	if r.listening.anyMissing() {
		r.lookAtListeners()
	}
	r.lookAtCores()
}

// lookAtCores finds the cores of the processes that were seen last.
func (r *agent) lookAtCores() {
	cores := map[topo.VIP]float64{}
	for _, o := range r.now.Load().Services {
		if n, seen := r.host.Cores(r.listening.processes(o.VIP)); seen {
			cores[o.VIP] = n
		}
	}
	r.speeds.mu.Lock()
	defer r.speeds.mu.Unlock()
	r.speeds.cores = cores
}
