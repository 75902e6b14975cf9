package apache

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/trace"
	"proffer/lab/traffic"
)

// web is the servers of a cell.
type web interface {
	Busy() []float64 // requests in hand, a server
	Close() error
}

// virtualWebs are servers on virtual cores, each on a port of its own.
type virtualWebs []*farmrun.Servers

func (v virtualWebs) Busy() (all []float64) {
	for _, s := range v {
		all = append(all, s.Busy()...)
	}
	return all
}

func (v virtualWebs) Close() error {
	var errs []error
	for _, s := range v {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// serve starts the servers of a cell.
func (r *run) serve(ctx context.Context, c cell) (web, error) {
	if !c.virtual {
		h, err := serveHTTPD(ctx, r.bed, r.Workers, webPort(c.policy))
		if err != nil {
			return nil, err
		}
		if err := h.limit(r.Share, r.Period); err != nil {
			return nil, errors.Join(err, h.Close())
		}
		return h, nil
	}
	if !central(c.policy) {
		return farmrun.Serve(r.bed, r.kinds().Machine(0))
	}
	var all virtualWebs
	for i, n := range r.bed.Servers {
		s, err := farmrun.ServeAt([]*testbed.Node{n}, netip.AddrPortFrom(r.bed.VIP, webPort(c.policy)(i)), r.kinds().Machine(0))
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all = append(all, s)
	}
	return all, nil
}

// outcome is the outcome of a cell.
type outcome struct {
	*farmrun.Result
	cell  cell
	cores cores
}

// cores are the processor cores that a run kept busy, means over it.
type cores struct{ servers, machine float64 }

// run measures a cell, with daemons and servers of its own.
func (r *run) run(ctx context.Context, c cell, arrivals []trace.Arrival) (_ *outcome, err error) {
	servers, err := r.serve(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	settings, err := r.settings(r.bed, c)
	if err != nil {
		return nil, err
	}
	farm, err := farmrun.Start(ctx, r.bed, settings)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, farm.Stop()) }()
	return r.drive(ctx, c, farm, servers, arrivals)
}

// drive sends the arrivals and collects the outcomes.
func (r *run) drive(ctx context.Context, c cell, farm *farmrun.Farm, servers web, arrivals []trace.Arrival) (*outcome, error) {
	client := traffic.Client{To: netip.AddrPortFrom(r.bed.VIP, testbed.Port), Timeout: requestTimeout, Enter: r.bed.Client.Enter}
	if central(c.policy) {
		t := newRounds(r.Servers)
		client.Choose = func() netip.AddrPort { return netip.AddrPortFrom(r.bed.VIP, webPort(c.policy)(t.next())) }
		if c.policy == feedback {
			defer t.poll(servers.Busy, r.Workers)()
		}
	}
	before, err := farmrun.ReadDrops(r.bed)
	if err != nil {
		return nil, err
	}
	spent := spend(servers)
	sampler := farmrun.Sample(servers.Busy)
	run, err := client.Run(ctx, r.requests(arrivals))
	loads := sampler.Stop()
	if err != nil {
		return nil, err
	}
	after, err := farmrun.ReadDrops(r.bed)
	if err != nil {
		return nil, err
	}
	used, err := spent()
	if err != nil {
		return nil, err
	}
	result := &farmrun.Result{Rows: run.Rows, Loads: loads, Drops: after.Since(before), Kinds: r.kinds()}
	if !central(c.policy) {
		err = farmrun.Locate(farm, result.Rows)
	}
	if err != nil {
		return nil, err
	}
	return &outcome{result, c, used}, r.kept(c, run.Rows)
}

// kept is nil if the requests left on time, beside the time that each takes alone on its server: a
// loop of the CPU time in its row takes longer on a share of a core.
func (r *run) kept(c cell, rows []traffic.Row) error {
	if c.virtual {
		return traffic.ScheduleOf(rows).Kept()
	}
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Service = time.Duration(float64(rows[i].Service) / r.Share)
	}
	return traffic.ScheduleOf(rows).Kept()
}

// requestTimeout is longer than any request waits in a queue that is not full.
const requestTimeout = time.Minute

// spend counts CPU time until the function that it returns is called.
func spend(servers web) func() (cores, error) {
	began := time.Now()
	before, err := spentBy(servers)
	machine, failed := farmrun.ReadCPU("/proc/stat")
	return func() (cores, error) {
		took := time.Since(began)
		after, ended := spentBy(servers)
		now, last := farmrun.ReadCPU("/proc/stat")
		const tick = 10 * time.Millisecond // USER_HZ
		return cores{
			servers: (after - before).Seconds() / took.Seconds(),
			machine: (time.Duration(now.Busy-machine.Busy) * tick).Seconds() / took.Seconds(),
		}, errors.Join(err, failed, ended, last)
	}
}

// spentBy is the CPU time of all httpds; virtual cores spend none.
func spentBy(servers web) (sum time.Duration, err error) {
	h, real := servers.(*httpds)
	if !real {
		return 0, nil
	}
	all, err := h.used()
	for _, used := range all {
		sum += used
	}
	return sum, err
}

// Calibration is the capacity of the servers, measured while all of them always had work.
type Calibration struct {
	Share     float64 `json:"share"`      // of a core that a server got
	LeastUsed float64 `json:"share_min"`  // by the server that got least
	MostUsed  float64 `json:"share_max"`  // and most
	Overhead  float64 `json:"overhead_s"` // CPU time of a request beside its loop
	Capacity  float64 `json:"capacity_per_s"`
	Alone     float64 `json:"service_s"` // of the mean request, alone on its server
	Machine   float64 `json:"machine_cores"`
}

// calibrate keeps all servers busy with equal requests, in turn, and measures the CPU time
// that they get, and that a request takes.
func (r *run) calibrate(ctx context.Context) (err error) {
	c := cell{policy: roundRobin, load: 1.5}
	r.step("calibrating")
	rate := c.load * float64(r.Servers) * r.Share / r.Mean.Seconds()
	arrivals := make([]trace.Arrival, int(rate*calibrateFor.Seconds()))
	for i := range arrivals {
		arrivals[i] = trace.Arrival{At: time.Duration(float64(i) / rate * 1e9), Service: r.Mean}
	}
	servers, err := r.serve(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	settings, err := r.settings(r.bed, c)
	if err != nil {
		return err
	}
	farm, err := farmrun.Start(ctx, r.bed, settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, farm.Stop()) }()
	h := servers.(*httpds)
	before, err := h.used()
	if err != nil {
		return err
	}
	shares := make(chan sharesOr, 1)
	go func() { shares <- h.sharesWithin(ctx, time.Second, calibrateFor-time.Second) }()
	result, err := r.drive(ctx, c, farm, servers, arrivals)
	got := <-shares
	if errors.Is(err, traffic.ErrLate) { // busy servers are busy, whenever a request came
		err = nil
	}
	if err = errors.Join(err, got.err); err != nil {
		return fmt.Errorf("calibrate: %w", err)
	}
	after, err := h.used()
	if err != nil {
		return err
	}
	r.report.Calibration = calibration(got, before, after, r.Mean, traffic.Count(result.Rows, traffic.OK))
	r.passed += calibrateFor + aroundHTTPD
	return nil
}

// sharesOr are the shares of a core that servers got, and of all cores that the machine used.
type sharesOr struct {
	shares  []float64
	machine float64
	err     error
}

// sharesWithin measures from one instant to another.
func (h *httpds) sharesWithin(ctx context.Context, from, to time.Duration) (s sharesOr) {
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	wait(from)
	machine := spend(h)
	began := time.Now()
	before, err := h.used()
	wait(to - from)
	took := time.Since(began).Seconds()
	after, failed := h.used()
	spent, last := machine()
	if s.err = errors.Join(err, failed, last); s.err != nil {
		return s
	}
	for i := range after {
		s.shares = append(s.shares, (after[i]-before[i]).Seconds()/took)
	}
	s.machine = spent.machine
	return s
}

func calibration(got sharesOr, before, after []time.Duration, mean time.Duration, served int) Calibration {
	c := Calibration{Machine: got.machine, LeastUsed: got.shares[0]}
	used := time.Duration(0)
	for i, share := range got.shares {
		c.Share += share / float64(len(got.shares))
		c.LeastUsed, c.MostUsed = min(c.LeastUsed, share), max(c.MostUsed, share)
		used += after[i] - before[i]
	}
	each := used.Seconds() / float64(max(served, 1))
	c.Overhead = each - mean.Seconds()
	c.Alone = each / c.Share
	c.Capacity = float64(len(got.shares)) / c.Alone
	return c
}
