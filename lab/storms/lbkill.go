package storms

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/topo"
)

// LBKill lets load balancers die under traffic, one at a time: their hosts, and
// their daemons alone, in turn (docs/failures.md: "LB process crashes", "LB host dies,
// or joins").
type LBKill struct {
	Every, For time.Duration
	Detect     time.Duration // from the death of a host to the withdrawal of its route
	LBs        int
	Servers    int
	Rate       float64 // short connections a second
	Idle, Bulk int     // flows
	Seed       uint64
	Programs   string // path of the proffer binary
}

// longestStall is a client's longest permitted wait: two lost SYNs would be three
// seconds, one is a second (RFC 6298 §2.1).
const longestStall = 1500 * time.Millisecond

// mostDetect is the longest time of detection with which a SYN is lost once only.
const mostDetect = 900 * time.Millisecond

// Asks is the most that the experiment asks of this machine.
func (e LBKill) Asks() farmrun.Asks { return farmrun.Asks{Rate: e.Rate, Mean: 20 * time.Millisecond} }

// Check returns an error for settings that cannot be run.
func (e LBKill) Check() error {
	switch {
	case e.LBs < 2 || e.LBs > testbed.MaxLBs:
		return fmt.Errorf("--lbs %d: want 2 to %d: one dies, another goes on", e.LBs, testbed.MaxLBs)
	case e.Every < 2*time.Second || e.Every > time.Minute:
		return fmt.Errorf("--every %v: want 2s to 1m", e.Every)
	case e.For < 2*e.Every || e.For > time.Hour:
		return fmt.Errorf("--for %v: want at least twice --every, and at most 1h", e.For)
	case e.Detect < 0 || e.Detect > mostDetect:
		return fmt.Errorf("--detect %v: want 0s to %v: a SYN that is sent again after a second must not go there, too", e.Detect, mostDetect)
	case !(e.Rate >= 1 && e.Rate <= 2000):
		return fmt.Errorf("--rate %v: want 1 to 2000", e.Rate)
	case e.Servers < 1 || e.Servers > testbed.MaxServers:
		return fmt.Errorf("--servers %d: want 1 to %d", e.Servers, testbed.MaxServers)
	case e.Idle < 0 || e.Idle > MaxFlows:
		return fmt.Errorf("--idle %d: want 0 to %d", e.Idle, MaxFlows)
	case e.Bulk < 0 || e.Bulk > 200:
		return fmt.Errorf("--bulk %d: want 0 to 200", e.Bulk)
	}
	return nil
}

func (e LBKill) settings() farmrun.Settings {
	return beside(farmrun.Settings{
		Policy:   topo.Policy{Dispatch: topo.Hunt, Acceptance: topo.Static, Threshold: 4},
		Workers:  32,
		Cores:    2,
		Programs: e.Programs,
	}, map[string]uint16{"shell": echoPort, "bulk": bulkPort})
}

// Run runs it once.
func (e LBKill) Run(ctx context.Context, show func(farmrun.Step)) (_ *LBKillReport, err error) {
	farmrun.Prefer()
	show(farmrun.Step{Doing: "building a farm", Total: e.kills(), Left: e.For})
	requests := traffic.Steady(e.Rate, e.For)
	bed, err := testbed.Up(ctx, testbed.Config{Servers: e.Servers, LBs: e.LBs, Clients: 2 + farmrun.ClientsFor(len(requests))})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	for i, from := range farmrun.RandomEnds(e.Seed, bed.ClientAddrs[2:], len(requests)) {
		requests[i].From = from
	}
	t, err := newTraffic(bed, requests)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	farm, err := farmrun.Start(ctx, bed, e.settings())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, farm.Stop()) }()
	return e.measure(ctx, farm, t, show)
}

// kills is how many there will be; after the last, one interval goes by.
func (e LBKill) kills() int { return int((e.For - 1) / e.Every) }

// measure kills under traffic and asks all flows at the end.
func (e LBKill) measure(ctx context.Context, farm *farmrun.Farm, t *farmTraffic, show func(farmrun.Step)) (*LBKillReport, error) {
	if err := t.open(ctx, e.Idle, e.Bulk); err != nil {
		return nil, err
	}
	r := &LBKillReport{experiment: e}
	swallowed, err := farm.Bed.Swallowed()
	if err != nil {
		return nil, err
	}
	group, running := errgroup.WithContext(ctx)
	began := time.Now()
	group.Go(func() (err error) {
		r.requests, err = t.web.Run(running, t.requests)
		return err
	})
	group.Go(func() (err error) {
		r.kills, err = e.kill(running, farm, began, show)
		return err
	})
	err = group.Wait()
	r.bulk = t.bulk.Stop()
	if err != nil {
		return nil, err
	}
	show(farmrun.Step{Doing: "asking all flows", Done: e.kills(), Total: e.kills()})
	r.idle = t.idle.Exchange(ctx, exchangeWithin)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.swallowed, err = farm.Bed.Swallowed(); err != nil {
		return nil, err
	}
	r.swallowed -= swallowed
	r.carrying, err = carrying(ctx, farm)
	return r, err
}

// carrying counts the LBs through which packets have gone since their daemons
// were started last.
func carrying(ctx context.Context, f *farmrun.Farm) (n int, err error) {
	for _, lb := range f.Bed.LBs {
		steered, err := f.Count(ctx, []*testbed.Node{lb}, "steer")
		if err != nil {
			return n, err
		}
		if steered > 0 {
			n++
		}
	}
	return n, nil
}

// kill lets a random LB die at each interval.
func (e LBKill) kill(ctx context.Context, farm *farmrun.Farm, began time.Time, show func(farmrun.Step)) (kills []kill, err error) {
	rng := rand.New(rand.NewPCG(e.Seed, 0))
	for i := range e.kills() {
		if err := farmrun.Sleep(ctx, time.Until(began.Add(time.Duration(i+1)*e.Every))); err != nil {
			return kills, err
		}
		k := kill{At: time.Since(began), LB: rng.IntN(e.LBs), Host: i%2 == 0}
		lb := farm.Bed.LBs[k.LB]
		show(farmrun.Step{Doing: fmt.Sprintf("killing %s", k.victim(lb.Name)), Done: i, Total: e.kills(), Left: e.For - k.At})
		if k.Host {
			err = replaceHost(ctx, farm, lb, e.Detect, e.Every/2)
		} else {
			err = replaceDaemon(ctx, farm, lb)
		}
		if err != nil {
			return kills, fmt.Errorf("kill %s: %w", k.victim(lb.Name), err)
		}
		k.Back = time.Since(began)
		kills = append(kills, k)
	}
	return kills, nil
}

// replaceHost lets an LB's host die. The router goes on sending to it until its death is
// detected; after a while the host is built again and announced.
func replaceHost(ctx context.Context, f *farmrun.Farm, lb *testbed.Node, detect, after time.Duration) error {
	if err := f.Bed.Fail(lb); err != nil {
		return err
	}
	if err := farmrun.Sleep(ctx, detect); err != nil {
		return err
	}
	if err := f.Bed.Kill(lb); err != nil {
		return err
	}
	if err := farmrun.Sleep(ctx, after); err != nil {
		return err
	}
	if err := f.Bed.Revive(ctx, lb); err != nil {
		return err
	}
	if err := f.Launch(ctx, lb); err != nil {
		return err
	}
	return f.Bed.Announce(f.Bed.LBs...)
}

// replaceDaemon kills an LB's daemon alone and starts the next: its programs go
// on in between.
func replaceDaemon(ctx context.Context, f *farmrun.Farm, lb *testbed.Node) error {
	p := f.Daemon(lb)
	if err := p.Signal(os.Kill); err != nil {
		return err
	}
	<-p.Done()
	return f.Launch(ctx, lb)
}
