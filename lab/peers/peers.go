// Package peers measures Proffer beside other load balancers, and the price of an offer.
package peers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"proffer/dataplane"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
)

// Experiment measures Proffer's LB beside its alternatives: the same
// clients, network and HTTP servers, and in the balancer's place, one after the
// other and again in the next round:
//
//	route    the kernel's forwarding, all to one server
//	ecmp     the same, to all servers by a hash
//	hunt     proffer lb, and proffer agent on the servers
//	single   the same, by hash
//	haproxy  TCP mode, leastconn, one thread
//	nginx    the stream module, least_conn, one worker
type Experiment struct {
	Rounds   int
	For      time.Duration // each measurement
	Servers  int
	Seed     uint64
	Programs string // path of the proffer binary
}

// Check returns an error for settings that cannot be run.
func (e Experiment) Check() error {
	switch {
	case e.Rounds < 1 || e.Rounds > 100:
		return fmt.Errorf("--rounds %d: want 1 to 100", e.Rounds)
	case e.For < 200*time.Millisecond || e.For > time.Minute:
		return fmt.Errorf("--for %v: want 200ms to 1m", e.For)
	case e.Servers < 2 || e.Servers > testbed.MaxServers:
		return fmt.Errorf("--servers %d: want 2 to %d: one alone needs no balancer", e.Servers, testbed.MaxServers)
	}
	return nil
}

// streamModule is where Debian has nginx's stream module.
const streamModule = "/usr/lib/nginx/modules/ngx_stream_module.so"

// installed names the missing programs of the peers.
func installed() error {
	errs := []error{farmrun.Installed(map[string]string{"haproxy": "haproxy", "nginx": "nginx-light", "wrk": "wrk", "curl": "curl"})}
	if _, err := os.Stat(streamModule); err != nil {
		errs = append(errs, fmt.Errorf("nginx's stream module is missing (%w): apt-get install libnginx-mod-stream", err))
	}
	return errors.Join(errs...)
}

// contest is a run of Peers.
type contest struct {
	Experiment
	bed     *testbed.Bed
	servers []int            // the HTTP servers' processes
	ends    []netip.AddrPort // of the clients of latency, each used once
	pace    *farmrun.Pace
}

// Run measures every peer in every round.
func (e Experiment) Run(ctx context.Context, show func(farmrun.Step)) (_ *Report, err error) {
	if err := installed(); err != nil {
		return nil, err
	}
	farmrun.Prefer()
	c := &contest{Experiment: e}
	c.pace = &farmrun.Pace{Began: time.Now(), Total: e.Rounds * len(peers()) * len(tasks()), Guess: e.For + time.Second/2, Show: show}
	c.pace.Begin("building a farm")
	once := int(latencyRate * e.For.Seconds())
	ends := once * e.Rounds * len(peers())
	c.bed, err = testbed.Up(ctx, testbed.Config{Servers: e.Servers, Clients: 1 + farmrun.ClientsFor(ends)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.bed.Close()) }() // and all that runs in it
	c.ends = farmrun.RandomEnds(e.Seed, c.bed.ClientAddrs[1:], ends)
	if err := errors.Join(c.spare(), c.serve(ctx)); err != nil {
		return nil, err
	}
	r := &Report{experiment: e}
	for round := range e.Rounds {
		if err := c.round(ctx, round, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// round measures every peer, each round another first.
func (c *contest) round(ctx context.Context, round int, r *Report) error {
	all := peers()
	at := round % len(all)
	for _, p := range slices.Concat(all[at:], all[:at]) {
		turn, err := c.turn(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		turn.round = round
		r.turns = append(r.turns, turn)
	}
	return nil
}

// turn is one peer's in one round.
type turn struct {
	peer  string
	round int
	done  []done
	path  path
}

// turn puts a peer into the balancer's place, measures and takes it out again.
func (c *contest) turn(ctx context.Context, p peer) (t *turn, err error) {
	before, err := c.counts()
	if err != nil {
		return nil, err
	}
	b, err := p.start(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	if err := c.answers(ctx, c.bed.VIP, b.processes...); err != nil {
		return nil, err
	}
	t = &turn{peer: p.name}
	for _, task := range tasks() {
		doing := fmt.Sprintf("%s: %s", p.name, task.name)
		c.pace.Begin(doing)
		d, err := c.perform(ctx, task, b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", task.name, err)
		}
		t.done = append(t.done, d)
		c.pace.End(doing)
	}
	after, err := c.counts()
	if err != nil {
		return nil, err
	}
	t.path = after.minus(before)
	if b.balanced != nil {
		t.path.balanced, err = b.balanced(ctx)
	}
	return t, err
}

// settle returns when the client receives nothing any more of the task before: a download
// that is broken off has thousands of frames on their way, and a SYN among them may be
// dropped.
func (c *contest) settle(ctx context.Context) error {
	return untilStill(ctx, func() (uint64, error) {
		now, err := c.bed.Client.Counters()
		return now.RxPackets, err
	})
}

// untilStill returns when a counter is twice the same, 20 ms apart; it waits about a
// second at most.
func untilStill(ctx context.Context, counter func() (uint64, error)) error {
	const still, tries = 20 * time.Millisecond, 50
	before, err := counter()
	for range tries {
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(still):
		}
		var now uint64
		if now, err = counter(); now == before {
			return err
		}
		before = now
	}
	return err
}

// perform does a task and takes down its cost. The kernel counts the run time of
// eBPF programs only where it is asked for, because that takes time as well.
func (c *contest) perform(ctx context.Context, t task, b *balancer) (d done, err error) {
	if err := c.settle(ctx); err != nil {
		return d, err
	}
	if t.costs {
		var stop func() error
		if stop, err = dataplane.CountRunTime(); err != nil {
			return d, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	before, err := b.spent()
	if err != nil {
		return d, err
	}
	if d, err = t.do(c, ctx); err != nil {
		return d, errors.Join(err, ctx.Err())
	}
	after, err := b.spent()
	d.task, d.cost = t.name, after.minus(before)
	return d, err
}
