package storms

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sync/errgroup"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
)

// rolling is a farm with servers that are replaced singly under its flows.
type rolling struct {
	farm   *farmrun.Farm
	bed    *testbed.Bed
	pool   *pool
	method Method

	flows      *traffic.Flows
	server     []string // of each flow
	lost       []bool   // flows that are counted as removed or reset
	firstTakes float64  // share of flows that their first candidate took
}

// open opens the flows through the first LB. The daemons of those LBs that will
// join cold end: no node has a configuration, a table or a next hop of theirs. Nor has one a record
// of the pool of the beginning, where the history is to be missing.
func (r *rolling) open(ctx context.Context, from []netip.AddrPort) error {
	if err := r.bed.Announce(r.bed.LBs[0]); err != nil {
		return err
	}
	for i, lb := range r.bed.LBs {
		if !r.cold(i) {
			continue
		}
		if err := r.farm.Daemon(lb).Stop(); err != nil {
			return err
		}
		if !r.method.keeps() {
			if err := os.Remove(r.farm.Record(lb)); err != nil {
				return fmt.Errorf("forget the pools of %s: %w", lb.Name, err)
			}
		}
	}
	var err error
	r.flows, err = traffic.OpenFlows(ctx, traffic.Dial{
		To: netip.AddrPortFrom(r.bed.VIP, testbed.Port), From: from, Rate: openRate, Enter: r.bed.Client.Enter,
	})
	if err != nil {
		return err
	}
	r.lost = make([]bool, len(from))
	answers := r.flows.Exchange(ctx, exchangeWithin)
	r.server = r.flows.Servers()
	if err := allAlive(answers); err != nil {
		return errors.Join(err, ctx.Err())
	}
	return r.countFirst(ctx)
}

// openRate is gentle: offers that wait in a queue are decided on together.
const openRate = 2000

// cold returns true if an LB's daemon is started only as the router turns to it. The first LB has
// the flows. Of the rest every second starts cold, and all where the history is to be missing: a
// daemon that ran all the time remembers each pool that it served.
func (r *rolling) cold(lb int) bool {
	return lb%2 == 1 || lb > 0 && r.method == WithoutHistory
}

// countFirst counts the share of the flows that their first candidates took.
func (r *rolling) countFirst(ctx context.Context) error {
	if !r.method.hunts() {
		r.firstTakes = 1
		return nil
	}
	first, err := r.farm.Count(ctx, r.bed.Servers, "accept_avail")
	r.firstTakes = float64(first) / float64(len(r.server))
	return err
}

// change replaces a server, at the same moment lets the router turn to the next
// LB, and then has all flows exchange data.
func (r *rolling) change(ctx context.Context, i int) (c Change, err error) {
	gone, err := r.pool.replace()
	if err != nil {
		return c, err
	}
	next := r.bed.LBs[i]
	if err := r.replace(ctx, gone, i); err != nil {
		return c, err
	}
	before, err := r.recovered(ctx, next)
	if err != nil {
		return c, err
	}
	answers := r.flows.Exchange(ctx, exchangeWithin)
	if err := ctx.Err(); err != nil {
		return c, err
	}
	c = Change{Number: i, Cold: r.cold(i)}
	if err := r.judge(&c, gone.Name, answers); err != nil {
		return c, err
	}
	after, err := r.recovered(ctx, next)
	c.Recovered = int(after - before)
	return c, errors.Join(err, r.enough(c))
}

// replace kills the server's host while all live LBs learn of the new pool, and
// announces the next.
func (r *rolling) replace(ctx context.Context, gone *testbed.Node, i int) error {
	var group errgroup.Group
	group.Go(func() error { return r.bed.Kill(gone) })
	for k, lb := range r.bed.LBs {
		if !r.cold(k) || k < i {
			group.Go(func() error { return r.farm.Reload(ctx, lb) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if _, err := r.farm.Status(ctx, gone); err == nil {
		return fmt.Errorf("%s was killed and its agent still answers", gone.Name)
	}
	if r.cold(i) {
		if err := r.farm.Launch(ctx, r.bed.LBs[i]); err != nil {
			return err
		}
	}
	return r.bed.Announce(r.bed.LBs[i])
}

// judge sorts the flows that lived before a change.
func (r *rolling) judge(c *Change, gone string, answers []traffic.Answer) error {
	for i, a := range answers {
		if r.lost[i] {
			continue
		}
		f := fate{Flow: a.From, Server: r.server[i], Outcome: a.Outcome}
		switch {
		case a.Outcome == traffic.OK && (a.Server != r.server[i] || a.Server == gone):
			return fmt.Errorf("flow from %s of %s was answered by %s", a.From, r.server[i], a.Server)
		case a.Outcome == traffic.OK:
			c.Live++
		case r.server[i] == gone:
			c.Removed++
			f.Removed, r.lost[i] = true, true
		default:
			c.Extra++
			r.lost[i] = true
			if a.Outcome == traffic.Silent {
				c.Silent++
			}
		}
		c.fates = append(c.fates, f)
	}
	return nil
}

// recovered counts the unknown flows that an LB recovered.
func (r *rolling) recovered(ctx context.Context, lb *testbed.Node) (uint64, error) {
	return r.farm.Count(ctx, []*testbed.Node{lb}, "stickiness_recovered")
}

// enough reports whether the new LB recovered the flows, or they were served in some
// other way and the run shows nothing.
func (r *rolling) enough(c Change) error {
	if r.method.hunts() && c.Recovered*10 < c.Live*9 {
		return fmt.Errorf("the new LB recovered %d of %d live flows, want at least 90 %%: no counter explains the others", c.Recovered, c.Live)
	}
	return nil
}
