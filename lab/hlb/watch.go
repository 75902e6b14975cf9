package hlb

import (
	"context"
	"slices"
	"sync"
	"time"

	"proffer/api"
	"proffer/lab/farmrun"
)

// belief is all that an LB has of its servers at an instant, as `proffer status --json` has it.
type belief struct {
	seconds float64 // since the run's start
	lb      int
	servers []api.LearnedStatus
}

// weights of its servers.
func (b belief) weights() []float64 {
	return mapped(b.servers, func(s api.LearnedStatus) float64 { return s.Weight })
}

// flows that it counts at its servers.
func (b belief) flows() []float64 {
	return mapped(b.servers, func(s api.LearnedStatus) float64 { return float64(s.Established + s.Embryonic) })
}

// durations of flows of its servers, means; 0 where it has none.
func (b belief) durations() []float64 {
	return mapped(b.servers, func(s api.LearnedStatus) float64 {
		if s.Mean == nil {
			return 0
		}
		return *s.Mean
	})
}

func mapped[T, V any](all []T, f func(T) V) []V {
	values := make([]V, len(all))
	for i, one := range all {
		values[i] = f(one)
	}
	return values
}

// askEvery is the time between two questions to the LBs.
const askEvery = 250 * time.Millisecond

// watch asks the LBs during a run, and slows servers down in the middle.
type watch struct {
	Experiment
	cell    cell
	beliefs []belief
}

// watch is Web's.
func (w *watch) watch(ctx context.Context, farm *farmrun.Farm, servers *farmrun.Servers) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	var failed error
	began := time.Now()
	group.Go(func() { failed = w.ask(ctx, began, farm) })
	if w.cell.course == slowed {
		group.Go(func() { w.slow(ctx, servers) })
	}
	return func() error {
		cancel()
		group.Wait()
		return failed
	}
}

// slow gives the second group other work once its time has come.
func (w *watch) slow(ctx context.Context, servers *farmrun.Servers) {
	if farmrun.Sleep(ctx, w.slowedAt()) != nil {
		return
	}
	kinds := w.kinds(w.cell)
	for i, s := range servers.All {
		if kinds.Faster(i) {
			s.SetSpeed(slowedSpeed)
		}
	}
}

// slowedSpeed is that of the cores of a server with other work.
const slowedSpeed = 0.5

// ask asks all LBs again and again until the run is over.
func (w *watch) ask(ctx context.Context, began time.Time, farm *farmrun.Farm) error {
	for {
		now := time.Since(began).Seconds()
		var all []belief
		for j, n := range farm.Bed.LBs {
			status, err := farm.Status(ctx, n)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			if learning := status.Services[0].Learning; learning != nil { // an LB that learns has, after a moment
				all = append(all, belief{now, j, inOrder(learning.Servers)})
			}
		}
		if len(all) == len(farm.Bed.LBs) {
			w.beliefs = append(w.beliefs, all...)
		}
		if farmrun.Sleep(ctx, askEvery) != nil {
			return nil
		}
	}
}

// inOrder are servers in the order of those of the bed.
func inOrder(servers []api.LearnedStatus) []api.LearnedStatus {
	return slices.SortedFunc(slices.Values(servers), func(a, b api.LearnedStatus) int { return farmrun.ServerIndex(a.Name) - farmrun.ServerIndex(b.Name) })
}
