package control

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
)

// link is a link of the plane, with the next hops over it.
type link struct {
	name    string // in the configuration
	label   string // for readers, where there are several
	number  int    // of the device that is watched
	hops    NextHops
	targets []netip.Addr // their next hops must always be known
	lacking lacking
	over    chan struct{}
	waits   sync.WaitGroup
}

// watchAll watches the links of the ways, each as the plane has it now, and no others. A link that cannot be
// watched has no next hops.
func (c *Controller) watchAll() error {
	defer c.show()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.ways)) {
		l, dev := c.links[name], c.plane.Link(name)
		if l != nil && dev != nil && l.number == dev.Index {
			errs = append(errs, c.aim(l))
			continue
		}
		if l != nil {
			errs = append(errs, c.unwatch(l))
		}
		if dev == nil {
			continue
		}
		hops, err := c.watch(dev.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, c.begin(name, dev.Index, hops))
	}
	for name, l := range c.links {
		if _, stays := c.ways[name]; !stays {
			l.close()
			delete(c.links, name)
		}
	}
	return errors.Join(errs...)
}

// begin keeps the next hops of a link. Start reads those of the first links.
func (c *Controller) begin(name string, number int, hops NextHops) error {
	l := &link{name: name, number: number, hops: hops, targets: c.ways[name], over: make(chan struct{}), lacking: lacking{asked: map[string]string{}}}
	if len(c.ways) > 1 {
		l.label = "on " + name
	}
	c.links[name] = l
	l.waits.Go(func() { l.pass(c.changes) })
	if !c.started {
		return nil
	}
	c.resolveTargets(l)
	return c.renewed(l)
}

// aim gives a link the targets of now.
func (c *Controller) aim(l *link) error {
	if now := c.ways[l.name]; !slices.Equal(now, l.targets) {
		l.targets = now
		c.resolveTargets(l)
		return c.renewed(l)
	}
	return nil
}

// pass passes the changes on until the link is closed.
func (l *link) pass(to chan<- *link) {
	for {
		select {
		case <-l.over:
			return
		case <-l.hops.Changes():
		}
		select {
		case <-l.over:
			return
		case to <- l:
		}
	}
}

func (l *link) close() {
	close(l.over)
	l.waits.Wait()
	l.hops.Close()
}

// unwatch ends the watch of a link that is gone, or that is another device now: the plane has no next hops over it.
func (c *Controller) unwatch(l *link) error {
	l.close()
	delete(c.links, l.name)
	return c.plane.Reach(l.name, nil)
}

// refresh resolves the targets' next hops, and leaves those that cannot be
// resolved yet to a later refresh.
func (c *Controller) refresh() {
	for _, l := range c.links {
		c.resolveTargets(l)
	}
}

func (c *Controller) resolveTargets(l *link) {
	if err := l.hops.Refresh(l.targets); err != nil {
		c.log.Warn("some next hops cannot be resolved yet", "error", err)
	}
}

// update copies the next hops of a link and returns how many are not known yet.
func (c *Controller) update(l *link) (missing int, err error) {
	hops, waiting, err := l.hops.Read()
	if err != nil {
		return 0, fmt.Errorf("read next hops: %w", err)
	}
	return len(waiting) + l.lacks(hops, waiting), c.plane.Reach(l.name, hops)
}

// renew is renewed, for a link that may be closed since.
func (c *Controller) renew(l *link) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links[l.name] != l {
		return nil
	}
	return c.renewed(l)
}

// renewed is update, and logs the targets and gateways that have lost their next hops, or have them again.
func (c *Controller) renewed(l *link) error {
	before := l.lost()
	_, err := c.update(l)
	now := l.lost()
	if gone := except(now, before); len(gone) > 0 {
		c.log.Warn("next hops are lost", "missing", len(gone), "addresses", someOf(l.named(gone)))
	}
	if back := except(before, now); len(back) > 0 {
		c.log.Info("next hops are known again", "addresses", someOf(back))
	}
	return err
}

// retry asks again for targets without a next hop, for others each time. Neighbours that the
// kernel forgot with a change of the link come back so.
func (c *Controller) retry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.links {
		for _, addr := range l.lacking.toRetry() {
			_ = l.hops.Resolve(addr) // the next refresh logs why not
		}
	}
}

// resolve asks for the neighbour of an address that packets had no next hop for: of a plane with one link.
func (c *Controller) resolve(addr netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.links {
		l.resolve(addr, c.log)
	}
}

// shown is the links of now, for a status that waits for no look at them.
type shown struct {
	ways  Ways
	links map[string]*link
}

func (c *Controller) show() { c.shown.Store(&shown{c.ways, maps.Clone(c.links)}) }

// Lacking lists the addresses that have no next hop, each with the reason if that is known:
// those that the plane must always know, gateways that do not answer, and those that packets had a moment ago.
func (c *Controller) Lacking() (list []string) {
	now := c.shown.Load()
	for name, targets := range now.ways {
		if now.links[name] == nil {
			for _, t := range targets {
				list = append(list, described(t.String(), "on "+name+", which is gone"))
			}
		}
	}
	for _, l := range now.links {
		list = append(list, l.lacked()...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
