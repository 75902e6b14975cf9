package storms

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/lab/farmrun"
	"proffer/lab/stats"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/raw"
)

// flooded is a farm under floods.
type flooded struct {
	farm       *farmrun.Farm
	bed        *testbed.Bed
	experiment Flood
	flows      *traffic.Flows
	ends       []netip.AddrPort // of the tries to come
	floods     uint64
}

func (f *flooded) service() netip.AddrPort { return netip.AddrPortFrom(f.bed.VIP, testbed.Port) }

// flood floods once; afterwards the established flows speak again.
func (f *flooded) flood(ctx context.Context, rate int) (row FloodRow, err error) {
	offers, full, err := f.met(ctx)
	if err != nil {
		return row, err
	}
	during, err := f.beside(ctx, rate)
	if err != nil {
		return row, err
	}
	after, err := f.speak(ctx)
	if err != nil {
		return row, err
	}
	row = FloodRow{
		Rate: rate, SentPPS: during.sent.Rate(), CPU: during.cpu, Established: f.experiment.Flows,
		Recovered: during.recovered + after.recovered,
		Tried:     during.n, OK: len(during.took), P90: during.p90(),
	}
	row.Lost, row.SilentDuring = lostOf(after.answers, during.answers)
	row.Offered, row.TableFull, err = f.met(ctx)
	row.Offered -= offers
	row.TableFull -= full
	return row, err
}

// met are the SYNs so far that the LB offered, and the flows that found no room there.
func (f *flooded) met(ctx context.Context) (offers, full uint64, err error) {
	offers, err = f.farm.Count(ctx, f.bed.LBs, "offer")
	full, errFull := f.farm.Count(ctx, f.bed.LBs, "table_full")
	return offers, full, errors.Join(err, errFull)
}

// besideFlood is the outcome of everything beside a flood.
type besideFlood struct {
	sent raw.Sent
	cpu  float64 // share of all CPUs that were busy
	tried
	spoken
}

// beside floods; half of the new connections are tried, then the established flows speak,
// then the other half is tried.
func (f *flooded) beside(ctx context.Context, rate int) (b besideFlood, err error) {
	before, err := farmrun.ReadCPU("/proc/stat")
	if err != nil {
		return b, err
	}
	f.floods++
	flood := raw.Flood{
		Interface: "eth0", To: f.service(), Clients: testbed.ClientNet(), Rate: float64(rate), For: f.experiment.For,
		Seed: f.experiment.Seed + f.floods, Enter: f.bed.Client.Enter,
	}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if b.sent, err = flood.Run(running); err != nil {
			return err
		}
		after, err := farmrun.ReadCPU("/proc/stat")
		b.cpu = after.Share(before)
		return err
	})
	group.Go(func() (err error) {
		b.tried, err = f.try(running, func() (err error) {
			b.spoken, err = f.speak(running)
			return err
		})
		return err
	})
	return b, group.Wait()
}

// spoken is the outcome of one exchange of the established flows.
type spoken struct {
	answers   []traffic.Answer
	recovered uint64 // packets
}

// speak lets the established flows speak, while no other connection does, and counts the
// packets that met no entry of their flow. A flood's own packets are SYNs, which do not.
func (f *flooded) speak(ctx context.Context) (s spoken, err error) {
	before, err := f.recovered(ctx)
	if err != nil {
		return s, err
	}
	s.answers = f.flows.Exchange(ctx, floodWithin)
	if err := ctx.Err(); err != nil {
		return s, err
	}
	after, err := f.recovered(ctx)
	s.recovered = after - before
	return s, err
}

// recovered are the packets so far that met no entry of their flow, at the LB or at its
// server.
func (f *flooded) recovered(ctx context.Context) (uint64, error) {
	atLB, err := f.farm.Count(ctx, f.bed.LBs, "recover")
	atServer, errServer := f.farm.Count(ctx, f.bed.Servers, "steered_adopted")
	return atLB + atServer, errors.Join(err, errServer)
}

// lostOf counts the flows that do not live after a flood, and those that gave no
// answer during it.
func lostOf(after, during []traffic.Answer) (lost, silent int) {
	for i := range after {
		if after[i].Outcome != traffic.OK {
			lost++
		}
		if during[i].Outcome == traffic.Silent {
			silent++
		}
	}
	return lost, silent
}

// tried are new connections, and how long those took that were answered,
// from when they were due, in order.
type tried struct {
	n    int
	took []time.Duration
}

// p90 is in milliseconds, of the answered connections; 0: none was.
func (t tried) p90() float64 {
	if len(t.took) == 0 {
		return 0
	}
	var ms []float64
	for _, d := range t.took {
		ms = append(ms, d.Seconds()*1e3)
	}
	return stats.Quantile(ms, 0.9)
}

// try opens new connections at an even rate, each of which speaks once, and calls between
// after half of them have had their answers. A connection without an answer in time failed.
func (f *flooded) try(ctx context.Context, between func() error) (t tried, err error) {
	n := f.experiment.tries()
	ends := f.ends[:n]
	f.ends = f.ends[n:]
	for i, half := range [][]netip.AddrPort{ends[:n/2], ends[n/2:]} {
		if i > 0 {
			if err := between(); err != nil {
				return t, err
			}
		}
		took, err := f.connect(ctx, half)
		if err != nil {
			return t, err
		}
		t.n += len(half)
		t.took = append(t.took, took...)
	}
	slices.Sort(t.took)
	return t, nil
}

// connect makes connections from these ends and returns the times of the answered ones.
func (f *flooded) connect(ctx context.Context, ends []netip.AddrPort) (took []time.Duration, err error) {
	var lock sync.Mutex
	group, running := errgroup.WithContext(ctx)
	began := time.Now()
	for i, end := range ends {
		due := began.Add(time.Duration(i) * time.Second / tryRate)
		if err := farmrun.Sleep(running, time.Until(due)); err != nil {
			return nil, errors.Join(group.Wait(), err)
		}
		group.Go(func() error {
			one, err := traffic.OpenFlows(running, traffic.Dial{To: f.service(), From: []netip.AddrPort{end}, Timeout: floodWithin, Enter: f.bed.Client.Enter})
			if err != nil {
				return err
			}
			defer one.Close()
			if one.Exchange(running, floodWithin)[0].Outcome == traffic.OK {
				lock.Lock()
				took = append(took, time.Since(due))
				lock.Unlock()
			}
			return running.Err()
		})
	}
	err = group.Wait()
	return took, err
}

// spin keeps every CPU as busy as the flood did and tries new connections.
func (f *flooded) spin(ctx context.Context, share float64) (t tried, err error) {
	burning, stop := context.WithCancel(ctx)
	var burners sync.WaitGroup
	for range runtime.NumCPU() {
		burners.Go(func() { raw.Spin(burning, share) })
	}
	t, err = f.try(ctx, func() error { return nil })
	stop()
	burners.Wait()
	return t, err
}
