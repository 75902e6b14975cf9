package edge

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/api"
	"proffer/lab/edgesim"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
)

// sample is the state of the farm at an instant. The nodes are asked in turn, so each has
// its own instant in at.
type sample struct {
	seconds            float64 // since the traffic began, of the first node
	at                 []time.Duration
	core               []api.VirtualStatus
	weights, predicted []float64
	packets            []uint64 // that the LB counted, as it predicts loads
}

// The latest frames with which a run is claimed: the LB counts packets in ticks of 30 ms.
const meanLate, p99Late = 5 * time.Millisecond, 30 * time.Millisecond

// mostLost is the part of the packets that may be lost before they are at a core, in queues of the
// machine.
const mostLost = 0.001

// run is a run of a cell.
type run struct {
	cell    cell
	traffic edgesim.Traffic
	samples []sample
	sent    int
	joined  bool // the spare node
}

// run makes the run of a cell on a bed.
func (e Experiment) run(ctx context.Context, bed *testbed.EdgeBed, c cell) (r *run, err error) {
	r = &run{cell: c, traffic: c.traffic(e)}
	packets, err := r.traffic.Packets(e.Seed)
	if err != nil {
		return nil, err
	}
	frames, err := newFrames(bed)
	if err != nil {
		return nil, err
	}
	farm, err := startFarm(ctx, bed, e.Programs, e.file(c))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, farm.stop()) }()
	start := farmrun.Monotonic{}.Now() + edgesim.Period
	var late traffic.Lateness
	sending, stop := context.WithCancel(ctx)
	defer stop()
	group, watching := errgroup.WithContext(sending)
	group.Go(func() (err error) {
		defer stop() // the watch
		r.sent, late, err = traffic.Punctual{Interface: "lb", Frames: frames.of(packets, start), Enter: bed.Client.Enter}.Run(watching)
		return err
	})
	group.Go(func() error { return r.watch(watching, farm, start) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := late.Schedule(meanLate, p99Late).Kept(); err != nil {
		return nil, err
	}
	if err := r.accounted(ctx, farm); err != nil {
		return nil, err
	}
	return r, r.complete()
}

// complete is that there are samples for the numbers of the run: two after the warm-up, and, in figure 5, after
// the second node joined.
func (r *run) complete() error {
	from := r.traffic.WarmUp.Seconds()
	if r.cell.spare() {
		if from = r.joins(); math.IsInf(from, 1) {
			return fmt.Errorf("%w: the second node took no flow: the LB wanted no other node, or did not let it join", errNothing)
		}
	}
	if n := len(r.from(from)); n < 2 {
		return fmt.Errorf("%w: %d samples from %.1f s on, want two at least", errNothing, n, from)
	}
	return nil
}

// errNothing: a run in which nothing was measured.
var errNothing = errors.New("there is no result")

// watch takes a sample every tick, until ctx ends, and lets the spare node join when the LB wants it.
func (r *run) watch(ctx context.Context, farm *farm, start time.Duration) error {
	ticks := time.NewTicker(edgesim.Period)
	defer ticks.Stop()
	for {
		s, lb, err := farm.sample(ctx, start)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		r.samples = append(r.samples, s)
		if lb.Edge.Wishes > 0 && r.cell.spare() && !r.joined {
			r.joined = true
			if err := farm.reweigh(1, 1); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// sample asks all daemons, and returns the LB's status besides.
func (f *farm) sample(ctx context.Context, start time.Duration) (s sample, lb api.Status, err error) {
	for _, n := range f.bed.Nodes {
		v, err := f.virtualCore(ctx, n)
		if err != nil {
			return s, lb, err
		}
		s.at = append(s.at, time.Duration(v.At)-start)
		s.core = append(s.core, v)
	}
	s.seconds = s.at[0].Seconds()
	if lb, err = f.status(ctx, f.bed.LB); err != nil {
		return s, lb, err
	}
	for _, c := range lb.Edge.Cores {
		s.weights, s.predicted, s.packets = append(s.weights, *c.Weight), append(s.predicted, *c.Load), append(s.packets, c.Packets)
	}
	return s, lb, nil
}

// virtualCore asks a node for its only core.
func (f *farm) virtualCore(ctx context.Context, n *testbed.Node) (v api.VirtualStatus, err error) {
	s, err := f.status(ctx, n)
	if err != nil {
		return v, err
	}
	if s.Edge == nil || len(s.Edge.Cores) != 1 || s.Edge.Cores[0].Virtual == nil {
		return v, fmt.Errorf("%s has no virtual core", n.Name)
	}
	return *s.Edge.Cores[0].Virtual, nil
}

// accounted is that the cores took or dropped all packets that were sent.
func (r *run) accounted(ctx context.Context, farm *farm) error {
	seen := uint64(0)
	for _, n := range farm.bed.Nodes {
		v, err := farm.virtualCore(ctx, n)
		if err != nil {
			return err
		}
		seen += v.Served + v.Dropped
	}
	if lost := 1 - float64(seen)/float64(max(r.sent, 1)); lost > mostLost || lost < 0 {
		return fmt.Errorf("%w: the cores saw %d of %d packets, so no result is claimed; free the machine, or ask for dearer packets by --cost", traffic.ErrLate, seen, r.sent)
	}
	return nil
}

// from are the samples from an instant on.
func (r *run) from(seconds float64) []sample {
	for i, s := range r.samples {
		if s.seconds >= seconds {
			return r.samples[i:]
		}
	}
	return nil
}

// loads are the measured loads of the nodes' cores between two samples.
func loadsBetween(a, b sample) (all []float64) {
	for i := range a.core {
		all = append(all, float64(b.core[i].Busy-a.core[i].Busy)/float64(b.core[i].At-a.core[i].At))
	}
	return all
}

// predictedBetween are the loads that the LB predicts of all its ticks between two samples: packets that it
// counted, of one cost. A sample's own prediction is that of one tick, and traffic in step with the samples has
// others between them.
func predictedBetween(a, b sample, cost time.Duration) (all []float64) {
	for i := range a.packets {
		all = append(all, float64(b.packets[i]-a.packets[i])*float64(cost)/float64(b.at[i]-a.at[i]))
	}
	return all
}

// window is an interval with the loads of the cores.
type window struct {
	end   float64 // s
	loads []float64
}

func (w window) apart() float64 { return math.Abs(w.loads[0] - w.loads[1]) }

// windows cuts samples into intervals of at least a length.
func windows(samples []sample, length time.Duration) (all []window) {
	for i, first := 1, 0; i < len(samples); i++ {
		if samples[i].at[0]-samples[first].at[0] >= length {
			all = append(all, window{samples[i].seconds, loadsBetween(samples[first], samples[i])})
			first = i
		}
	}
	return all
}

// sliding are the intervals of at least a length that end with each sample.
func sliding(samples []sample, length time.Duration) (all []window) {
	first := 0
	for i := range samples {
		if samples[i].at[0]-samples[first].at[0] < length {
			continue
		}
		for samples[i].at[0]-samples[first+1].at[0] >= length {
			first++
		}
		all = append(all, window{samples[i].seconds, loadsBetween(samples[first], samples[i])})
	}
	return all
}

// meanApart is the mean difference between two cores' loads, in intervals of a length, or in all of a
// shorter time; samples are two at least.
func meanApart(samples []sample, length time.Duration) float64 {
	all := windows(samples, length)
	if len(all) == 0 {
		last := samples[len(samples)-1]
		return window{last.seconds, loadsBetween(samples[0], last)}.apart()
	}
	sum := 0.0
	for _, w := range all {
		sum += w.apart()
	}
	return sum / float64(len(all))
}

// joins is when the second node first took flows; +Inf: never.
func (r *run) joins() float64 {
	for _, s := range r.samples {
		if s.weights[1] > 0 {
			return s.seconds
		}
	}
	return math.Inf(1)
}

// level is how long after the second node had joined the loads were level; +Inf: never.
func (r *run) level() float64 {
	begun := r.joins()
	var all []edgesim.Distance
	for _, w := range sliding(r.from(begun), edgesim.LevelOver) {
		all = append(all, edgesim.Distance{Until: w.end, Apart: w.apart()})
	}
	return edgesim.FirstLevel(all) - begun
}
