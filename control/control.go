// Package control is the daemons' slow side: it keeps a data plane's next hops,
// flow table and load reports up to date while packets flow past it.
package control

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"proffer/dataplane"
	"proffer/topo"
)

// Plane is the data plane under control, on one or several links of its configuration.
type Plane interface {
	Link(name string) *net.Interface // as it is now; nil: it is gone, and the plane goes on without it
	Follow() (changed string, err error)
	Problems() ([]string, error)                 // why packets pass the plane by
	Reach(link string, hops topo.NextHops) error // gives it the next hops over a link; nil: none
	Unresolved() (netip.Addr, error)             // waits for an address that a packet had no next hop for; an error: there are none any more
	SweepTurn() (dataplane.Swept, error)
	Suspects() ([]dataplane.Suspect, error) // the senders of signals without a valid tag
}

// NextHops are those over a link, watched until Close.
type NextHops interface {
	Changes() <-chan struct{}
	Read() (hops topo.NextHops, waiting topo.Waiting, err error)
	Resolve(netip.Addr) error
	Refresh([]netip.Addr) error
	Close()
}

// Clock paces the upkeep.
type Clock interface {
	// Tick sends at the end of each period until stop is called. A tick without a
	// receiver may be dropped.
	Tick(period time.Duration) (ticks <-chan time.Time, stop func())
	Now() time.Duration // CLOCK_MONOTONIC, as on load pages
}

// Ways are the links of a plane, with the addresses over each whose next hops must always be known.
type Ways map[string][]netip.Addr

const (
	sweepEvery   = time.Second
	refreshEvery = 15 * time.Second

	resolveWithin = time.Second // Start waits so long for neighbours to answer
)

// Controller keeps a data plane.
type Controller struct {
	plane   Plane
	watch   func(link string) (NextHops, error)
	clock   Clock
	log     *slog.Logger
	changes chan *link      // those with other next hops
	asked   chan netip.Addr // packets had no next hop for them
	flows   atomic.Uint64

	mu       sync.Mutex // of the links: a look at next hops at a time
	ways     Ways
	started  bool
	shown    atomic.Pointer[shown]
	links    map[string]*link
	suspects map[netip.Prefix]uint64 // packets of each, when it was last logged
	problems problems
	said     map[string]string // the last error of each part of the upkeep
}

// New makes the controller of a plane with these ways. watch begins to watch the next hops of a link, by its
// name of now.
func New(plane Plane, watch func(link string) (NextHops, error), ways Ways, clock Clock, log *slog.Logger) *Controller {
	return &Controller{
		plane: plane, watch: watch, ways: ways, clock: clock, log: log,
		changes: make(chan *link), asked: make(chan netip.Addr), links: map[string]*link{}, said: map[string]string{},
	}
}

// SetWays changes the links and addresses, which are resolved at once, or at the next refresh if that fails.
func (c *Controller) SetWays(ways Ways) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ways = ways
	c.say("links", c.watchAll())
}

// Close ends the watch.
func (c *Controller) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.links {
		l.close()
	}
	clear(c.links)
}

// Flows is how many entries the last sweep kept.
func (c *Controller) Flows() uint64 { return c.flows.Load() }

// Start copies the next hops into the plane; after it packets can be sent. Neighbours
// that do not answer for a second are left to a later refresh, and so are all if ctx
// ends.
func (c *Controller) Start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.watchAll(); err != nil {
		return err
	}
	c.started = true
	c.refresh()
	late, stop := c.clock.Tick(resolveWithin)
	defer stop()
	for {
		missing, err := 0, error(nil)
		for _, l := range c.links {
			some, e := c.update(l)
			missing, err = missing+some, errors.Join(err, e)
		}
		if err != nil || missing == 0 {
			return err
		}
		select {
		case <-c.changes:
		case <-late:
			var lost []string
			for _, l := range c.links {
				lost = append(lost, l.named(l.lost())...)
			}
			c.log.Warn("some next hops do not answer yet", "missing", missing, "addresses", someOf(lost))
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// Run works until ctx ends or a link is gone. Any other error after Start does not stop the
// packets, so it is logged, once while it stays, and Run goes on.
func (c *Controller) Run(ctx context.Context) error {
	sweep, stopSweep := c.clock.Tick(sweepEvery)
	defer stopSweep()
	refresh, stopRefresh := c.clock.Tick(refreshEvery)
	defer stopRefresh()
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-c.changes:
			c.say("next hops", c.renew(l))
			if err := c.follow(); err != nil {
				return err
			}
		case addr := <-c.asked:
			c.resolve(addr)
		case <-refresh:
			c.reread()
		case <-sweep:
			if err := c.follow(); err != nil {
				return err
			}
			c.say("problems", c.problems.check(c.plane, c.log))
			c.say("sweep", c.sweep())
			c.retry()
		}
	}
}

// say logs the error of a part of the upkeep, once while it stays.
func (c *Controller) say(part string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != c.said[part] {
		c.log.Error("upkeep of the data plane", "error", err)
	}
	c.said[part] = text
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

// reread resolves the targets again, and reads all next hops whether a change was signalled
// or not.
func (c *Controller) reread() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var refreshed, err error
	for _, l := range c.links {
		refreshed = errors.Join(refreshed, l.hops.Refresh(l.targets))
		err = errors.Join(err, c.renewed(l))
		l.forget(c.log)
	}
	c.say("refresh", refreshed)
	c.say("next hops", err)
	c.say("suspects", c.suspect())
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

// follow logs a change of a link, with which the kernel may have forgotten neighbours, or of
// the namespaces behind it. It returns an error if a link is gone without which the plane cannot go on.
func (c *Controller) follow() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, err := c.plane.Follow()
	if errors.Is(err, dataplane.ErrLinkGone) {
		return err
	}
	err = errors.Join(err, c.watchAll())
	if changed != "" {
		c.log.Warn("a change is followed", "change", changed)
		c.refresh()
	}
	c.say("links", err)
	return nil
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
