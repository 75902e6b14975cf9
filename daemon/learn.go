package daemon

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"proffer/api"
	"proffer/control"
	"proffer/topo"
)

// readEvery is how often the tallies are read: a server has room for 8 durations.
const readEvery = 100 * time.Millisecond

// recountEvery is how often flows are counted again.
const recountEvery = time.Minute

// learning learns the speeds of servers until ctx ends. It begins with a recount: an earlier daemon
// may have ended in the middle of a recount.
func (r *lb) learning(ctx context.Context) error {
	ticks, stop := r.host.Clock.Tick(readEvery)
	defer stop()
	recounted, failed := time.Duration(0), ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
		now := r.host.Clock.Now()
		err := r.learn(now)
		if recounted == 0 || now-recounted >= recountEvery {
			recounted = now
			err = errors.Join(err, r.recount())
		}
		if err != nil && err.Error() != failed {
			r.host.Log.Error("learn the servers' speeds", "error", err)
		}
		failed = ""
		if err != nil {
			failed = err.Error()
		}
	}
}

// learn reads the tallies of all services that have a tally, and takes those steps that are due.
func (r *lb) learn(at time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.renewLearners()
	for i := range r.learnFor.Services {
		svc := &r.learnFor.Services[i]
		l := r.learners[svc.VIP]
		if l == nil {
			continue
		}
		seats, e := r.plane.Seats(svc)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		l.Observe(at, seats, rand.Uint64)
		if l.Due(at) {
			before := l.Spread().Counting
			spread := l.Step(at)
			err = errors.Join(err, r.plane.Spread(svc, spread))
			r.noteCounting(svc, before, spread.Counting)
		}
	}
	return err
}

// renewLearners makes the learners of the configuration that is served now, if they are of another configuration.
// The plane gets the reports that they keep.
func (r *lb) renewLearners() (err error) {
	cfg := r.serving()
	if r.learnFor == cfg {
		return nil
	}
	learners := map[topo.VIP]*control.Learner{}
	for i := range cfg.Services {
		svc := &cfg.Services[i]
		if !svc.Dispatch.Seats() {
			continue
		}
		l := control.NewLearner(svc, r.learners[svc.VIP])
		learners[svc.VIP] = l
		if polls := l.Polls(); polls != nil {
			err = errors.Join(err, r.queue(svc, polls))
		}
	}
	r.learners, r.learnFor = learners, cfg
	return err
}

// recount counts flows again, if any service has a tally.
func (r *lb) recount() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.learners) == 0 {
		return nil
	}
	wrong, err := r.plane.Recount()
	if wrong > 0 {
		r.wrongCounts += uint64(wrong)
		r.host.Log.Warn("counts of flows were wrong, and are right again", "servers", wrong)
	}
	return err
}

// noteCounting logs when other flows count.
func (r *lb) noteCounting(svc *topo.Service, before, now topo.Counting) {
	switch {
	case before == now:
	case now == topo.FloodCounting:
		r.host.Log.Warn("most SYNs do not come to life: new flows are spread by established ones alone", "service", svc.Name)
	default:
		r.host.Log.Info("most SYNs come to life again", "service", svc.Name)
	}
}

// learned describes the servers of a service as they are known, or nil.
func (r *lb) learned(svc *topo.Service) *api.LearningStatus {
	l := r.learners[svc.VIP]
	if l == nil || r.learnFor != r.serving() {
		return nil
	}
	s := &api.LearningStatus{
		Counting: l.Spread().Counting.String(), Silent: l.Spread().Silent.Seconds(), Gain: l.Gain(), Noise: l.Noise(), Wrong: r.wrongCounts,
	}
	if part, known := l.Conversion(); known {
		s.Conversion = &part
	}
	for i, server := range l.Learned() {
		one := api.LearnedStatus{
			Name: svc.Servers[i].Name, Established: server.Established, Embryonic: server.Embryonic,
			Samples: server.Samples, Filter: server.Learned.Kalman.Mean, Variance: server.Learned.Kalman.Var,
			Weight: server.Weight, Why: server.Why,
		}
		if r.health.Down(svc.Servers[i].At()) {
			one.Why = "down: it answers nothing"
		}
		if server.Samples > 0 {
			mean := server.Learned.Mean
			one.Mean = &mean
		}
		s.Servers = append(s.Servers, one)
	}
	return s
}
