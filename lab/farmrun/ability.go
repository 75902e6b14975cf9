package farmrun

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"proffer/lab/testbed"
	"proffer/lab/trace"
	"proffer/lab/traffic"
	"proffer/policy"
)

// Ability is what this machine was seen to do.
type Ability struct {
	Rate   float64       // requests a second that left on time; 0: none
	Around time.Duration // what a run takes beside its requests, with the daemons of this farm
}

// Trial is the traffic that a machine is tried with: short runs on a farm of daemons that hunt, which costs
// a machine most.
type Trial struct {
	Kinds
	LBs      int
	Load     float64 // ρ, of the farm's capacity
	Programs string  // path of the proffer binary
}

// Asks is the traffic of an experiment where it asks most of its generator.
type Asks struct {
	Rate     float64       // requests a second
	Mean     time.Duration // service time
	Punctual bool          // there is no result of requests that leave late
}

// Try says whether this machine can send what an experiment asks for, on a small farm.
func (a Asks) Try(ctx context.Context, programs string) (string, error) {
	t := Trial{Kinds: Kinds{Servers: 4, Cores: 2, Workers: 32}, Load: 0.5, Programs: programs}
	s, err := t.Try(ctx, a.Rate, a.Mean)
	if err != nil {
		return "", err
	}
	return a.say(s), nil
}

// say is what a trial's schedule says.
func (a Asks) say(s traffic.Schedule) string {
	switch late := s.Kept(); {
	case late == nil:
		return fmt.Sprintf("this machine can: %.0f requests/s of a trial left %v late in the mean (allowed: %v)", a.Rate, s.Mean.Round(time.Microsecond), s.MeanLimit)
	case a.Punctual:
		return fmt.Sprintf("this machine cannot send %.0f requests/s on time now, so expect runs without a result and exit code 1. A trial: %v", a.Rate, late)
	default:
		return fmt.Sprintf("this machine cannot send %.0f requests/s on time now: times of this experiment will show that. A trial: %v", a.Rate, late)
	}
}

const (
	leastRate, mostRate = 64.0, 4096.0 // requests a second that are tried
	trialFor            = 400 * time.Millisecond
	fewestRequests      = 25
	narrowings          = 2
	mostRuns            = 7 + narrowings // Highest's
)

// Measure tries rates until requests leave late, in some seconds.
func (t Trial) Measure(ctx context.Context) (able Ability, err error) {
	began := time.Now()
	var tried time.Duration
	err = t.on(ctx, mostRuns, func(run func(rate float64) (traffic.Schedule, error)) error {
		able.Rate, err = Highest(func(rate float64) (bool, error) {
			start := time.Now()
			s, err := run(rate)
			tried += time.Since(start)
			return s.Kept() == nil, err
		})
		return err
	})
	able.Around = time.Since(began) - tried
	return able, err
}

// Try tries one rate, of requests of a mean service time, as often as a run is. The schedule says if they left
// on time.
func (t Trial) Try(ctx context.Context, rate float64, mean time.Duration) (s traffic.Schedule, err error) {
	err = t.on(ctx, Tries, func(run func(float64) (traffic.Schedule, error)) error {
		for range Tries {
			if s, err = run(rate); err != nil {
				return err
			}
			if s = s.For(mean); s.Kept() == nil {
				return nil
			}
		}
		return nil
	})
	return s, err
}

// on builds the farm, and takes it down.
func (t Trial) on(ctx context.Context, runs int, do func(run func(rate float64) (traffic.Schedule, error)) error) (err error) {
	Prefer()
	bed, err := testbed.Up(ctx, testbed.Config{Servers: t.Servers, LBs: t.LBs, Clients: runs})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	servers, err := Serve(bed, t.Machines()...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	hunt, err := policy.Parse("hunt:dynamic")
	if err != nil {
		return err
	}
	farm, err := Start(ctx, bed, Web{Kinds: t.Kinds, Policy: Compared{Policy: hunt}, Programs: t.Programs}.settings(bed))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, farm.Stop()) }()
	next := 0
	return do(func(rate float64) (traffic.Schedule, error) {
		next++
		return t.run(ctx, bed, bed.ClientAddrs[next-1:next], rate)
	})
}

// run sends requests at a rate. Their services are short where the farm's would be long, so that it ends.
func (t Trial) run(ctx context.Context, bed *testbed.Bed, from []netip.Addr, rate float64) (traffic.Schedule, error) {
	mean := t.MeanAt(rate)
	requests := Requests(trace.Poisson(1, max(int(rate*trialFor.Seconds()), fewestRequests), rate, min(mean, 20*time.Millisecond)), from)
	client := traffic.Client{To: netip.AddrPortFrom(bed.VIP, testbed.Port), Enter: bed.Client.Enter, Timeout: 2 * time.Second}
	done, err := client.Run(ctx, requests)
	if err != nil {
		return traffic.Schedule{}, err
	}
	if traffic.Count(done.Rows, traffic.OK) == 0 {
		return traffic.Schedule{}, fmt.Errorf("no request of %d at %.0f/s was answered; the first: %s", len(done.Rows), rate, done.Rows[0].Cause)
	}
	return done.Schedule.For(mean), nil
}

// MeanAt is the mean service time with which requests at a rate are the load.
func (t Trial) MeanAt(rate float64) time.Duration {
	return time.Duration(t.Load * t.Capacity() / rate * float64(time.Second))
}

// Highest finds about the highest rate that a machine keeps: it doubles the rate until it is not kept, and
// then halves the step between that rate and the last kept rate. 0: it keeps none.
func Highest(kept func(rate float64) (bool, error)) (float64, error) {
	best, failed := 0.0, 0.0
	for rate := leastRate; rate <= mostRate && failed == 0; rate *= 2 {
		is, err := kept(rate)
		if err != nil {
			return 0, err
		}
		if is {
			best = rate
		} else {
			failed = rate
		}
	}
	if best == 0 || failed == 0 {
		return best, nil
	}
	for range narrowings {
		rate := math.Sqrt(best * failed)
		is, err := kept(rate)
		if err != nil {
			return 0, err
		}
		if is {
			best = rate
		} else {
			failed = rate
		}
	}
	return best, nil
}
