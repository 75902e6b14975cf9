// Package control is the daemons' slow side: it keeps a data plane's next hops,
// flow table and load reports up to date while packets flow past it.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"proffer/dataplane"
	"proffer/topo"
)

// Plane is the data plane under control.
type Plane interface {
	Follower
	Suspicious
	Checker
	SetNextHops(topo.NextHops) error
	SweepTurn() (dataplane.Swept, error)
	Unresolved() (netip.Addr, error)
}

// Follower gives the link's address and MTU of now to the programs.
type Follower interface {
	Follow() (changed string, err error)
}

// Suspicious reports the senders of signals without a valid tag.
type Suspicious interface {
	Suspects() ([]dataplane.Suspect, error)
}

// NextHops is the source of next hops.
type NextHops interface {
	Table
	Resolver
}

// Table holds the next hops that are known.
type Table interface {
	Changes() <-chan struct{}
	Read() (hops topo.NextHops, waiting topo.Waiting, err error)
}

// Resolver finds next hops and keeps them known.
type Resolver interface {
	Resolve(netip.Addr) error
	Refresh([]netip.Addr) error
}

// Clock paces the upkeep.
type Clock interface {
	// Tick sends at the end of each period until stop is called. A tick without a
	// receiver may be dropped.
	Tick(period time.Duration) (ticks <-chan time.Time, stop func())
}

const (
	sweepEvery   = time.Second
	refreshEvery = 15 * time.Second

	resolveWithin = time.Second // Start waits so long for neighbours to answer
)

// Controller keeps one data plane.
type Controller struct {
	plane    Plane
	hops     NextHops
	clock    Clock
	log      *slog.Logger
	targets  atomic.Pointer[[]netip.Addr] // their next hops must always be known
	asked    chan netip.Addr              // packets had no next hop for them
	flows    atomic.Uint64
	lacking  lacking
	suspects map[netip.Prefix]uint64 // packets of each, when it was last logged
	problems Problems
}

// New makes the controller of a plane that must always know the next hops of
// targets.
func New(plane Plane, hops NextHops, targets []netip.Addr, clock Clock, log *slog.Logger) *Controller {
	c := &Controller{plane: plane, hops: hops, clock: clock, log: log, asked: make(chan netip.Addr), lacking: lacking{asked: map[string]string{}}}
	c.targets.Store(&targets)
	return c
}

// SetTargets changes the addresses with next hops that must always be known. They
// are resolved at once, or at the next refresh if that fails.
func (c *Controller) SetTargets(addrs []netip.Addr) {
	c.targets.Store(&addrs)
	c.refresh()
}

// refresh resolves the targets' next hops, and leaves those that cannot be
// resolved yet to a later refresh.
func (c *Controller) refresh() {
	if err := c.hops.Refresh(*c.targets.Load()); err != nil {
		c.log.Warn("some next hops cannot be resolved yet", "error", err)
	}
}

// Flows is how many entries the last sweep kept.
func (c *Controller) Flows() uint64 { return c.flows.Load() }

// Start copies the next hops into the plane; after it packets can be sent. Neighbours
// that do not answer for a second are left to a later refresh, and so are all if ctx
// ends.
func (c *Controller) Start(ctx context.Context) error {
	c.refresh()
	late, stop := c.clock.Tick(resolveWithin)
	defer stop()
	for {
		missing, err := c.update()
		if err != nil || missing == 0 {
			return err
		}
		select {
		case <-c.hops.Changes():
		case <-late:
			c.log.Warn("some next hops do not answer yet", "missing", missing, "addresses", c.named(c.lost()))
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// Run works until ctx ends or the link is gone. Any other error after Start does not stop the
// packets, so it is logged and Run goes on.
func (c *Controller) Run(ctx context.Context) error {
	sweep, stopSweep := c.clock.Tick(sweepEvery)
	defer stopSweep()
	refresh, stopRefresh := c.clock.Tick(refreshEvery)
	defer stopRefresh()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-c.hops.Changes():
			err = c.renew()
			err = errors.Join(c.follow(), err)
		case addr := <-c.asked:
			c.resolve(addr)
		case <-refresh:
			err = c.reread()
		case <-sweep:
			err = errors.Join(c.follow(), c.problems.Check(c.plane, c.log), c.sweep())
			c.retry()
		}
		if errors.Is(err, dataplane.ErrLinkGone) {
			return err
		}
		if err != nil {
			c.log.Error("upkeep of the data plane", "error", err)
		}
	}
}

// Listen has Run resolve the addresses that packets had no next hop for, until
// the plane is closed.
func (c *Controller) Listen(ctx context.Context) {
	for {
		addr, err := c.plane.Unresolved()
		if err != nil {
			return
		}
		select {
		case c.asked <- addr:
		case <-ctx.Done():
			return
		}
	}
}

// update copies the next hops and returns how many are not known yet.
func (c *Controller) update() (missing int, err error) {
	hops, waiting, err := c.hops.Read()
	if err != nil {
		return 0, fmt.Errorf("read next hops: %w", err)
	}
	return len(waiting) + c.lacks(hops, waiting), c.plane.SetNextHops(hops)
}

// reread resolves the targets again, and reads all next hops whether a change was signalled
// or not.
func (c *Controller) reread() error {
	refreshed := c.hops.Refresh(*c.targets.Load())
	err := c.renew()
	c.forget()
	return errors.Join(refreshed, err, c.suspect())
}

// suspect logs the senders that have sent more signals without a valid tag since the last
// look.
func (c *Controller) suspect() error {
	found, err := c.plane.Suspects()
	if err != nil {
		return err
	}
	now := map[netip.Prefix]uint64{}
	for _, s := range found {
		if now[s.Sender] = s.Packets; c.suspects[s.Sender] != s.Packets {
			c.log.Warn("signals without a valid tag: has the sender another key file?", "sender", s.Sender, "packets", s.Packets)
		}
	}
	c.suspects = now
	return nil
}

// follow logs a change of the link, with which the kernel may have forgotten neighbours, or of
// the namespaces behind it.
func (c *Controller) follow() error {
	changed, err := c.plane.Follow()
	if changed != "" {
		c.log.Warn("a change is followed", "change", changed)
		c.refresh()
	}
	return err
}

func (c *Controller) sweep() error {
	swept, err := c.plane.SweepTurn()
	if err != nil {
		return err
	}
	c.flows.Store(swept.Kept)
	if swept.Recounted > 0 {
		c.log.Warn("counts of requests in progress were wrong, and are right again", "loads", swept.Recounted)
	}
	return nil
}
