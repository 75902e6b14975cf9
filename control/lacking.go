package control

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"proffer/topo"
)

// mostLacking bounds the addresses that are kept, and logged, between two refreshes: clients
// choose them.
const mostLacking = 16

// lacking are addresses without a next hop.
type lacking struct {
	mu      sync.Mutex
	targets []string          // of the daemon's own, at the last reading
	retried int               // how many of them were asked for again
	asked   map[string]string // that packets had: the reason, by address, since the last refresh
	before  map[string]string // between the two refreshes before that
}

// Lacking lists the addresses that have no next hop, each with the reason if that is known:
// those that the plane must always know, and those that packets had a moment ago.
func (c *Controller) Lacking() []string {
	l := &c.lacking
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.Clone(l.targets)
	for _, some := range []map[string]string{l.asked, l.before} {
		for addr, reason := range some {
			list = append(list, described(addr, reason))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func described(addr, reason string) string {
	if reason == "" {
		return addr
	}
	return addr + " (" + reason + ")"
}

// lacks notes which targets have no next hop.
func (c *Controller) lacks(hops topo.NextHops) (missing int) {
	var list []string
	for _, t := range *c.targets.Load() {
		if _, ok := hops.Lookup(t); !ok {
			list = append(list, t.String())
		}
	}
	c.lacking.mu.Lock()
	defer c.lacking.mu.Unlock()
	c.lacking.targets = list
	for _, some := range []map[string]string{c.lacking.asked, c.lacking.before} {
		for addr := range some {
			if _, ok := hops.Lookup(netip.MustParseAddr(addr)); ok {
				delete(some, addr)
			}
		}
	}
	return len(list)
}

// lost lists the targets without a next hop at the last reading.
func (c *Controller) lost() []string {
	c.lacking.mu.Lock()
	defer c.lacking.mu.Unlock()
	return slices.Clone(c.lacking.targets)
}

// renew is update, and logs the targets that have lost their next hops, or have them again.
func (c *Controller) renew() error {
	before := c.lost()
	_, err := c.update()
	now := c.lost()
	if gone := except(now, before); len(gone) > 0 {
		c.log.Warn("next hops are lost", "missing", len(gone), "addresses", someOf(gone))
	}
	if back := except(before, now); len(back) > 0 {
		c.log.Info("next hops are known again", "addresses", someOf(back))
	}
	return err
}

// except lists the addresses that are not among others.
func except(list, others []string) []string {
	known := map[string]bool{}
	for _, a := range others {
		known[a] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(a string) bool { return known[a] })
}

// someOf bounds a list in the log.
func someOf(list []string) string {
	return strings.Join(list[:min(len(list), mostLacking)], " ")
}

// mostRetried bounds the requests of a second.
const mostRetried = 16

// retry asks again for targets without a next hop, for others each time. Neighbours that the
// kernel forgot with a change of the link come back so.
func (c *Controller) retry() {
	l := &c.lacking
	l.mu.Lock()
	targets, first := l.targets, l.retried
	l.retried += mostRetried
	l.mu.Unlock()
	for i := range min(mostRetried, len(targets)) {
		addr := netip.MustParseAddr(targets[(first+i)%len(targets)])
		_ = c.hops.Resolve(addr) // the next refresh logs why not
	}
}

// resolve asks for the neighbour of an address that packets had no next hop for. The log
// names an address that has no route, again after the next refresh.
func (c *Controller) resolve(addr netip.Addr) {
	err := c.hops.Resolve(addr)
	l, name, reason := &c.lacking, addr.String(), ""
	if err != nil {
		reason = err.Error()
	}
	l.mu.Lock()
	_, known := l.asked[name]
	if room := len(l.asked) < mostLacking; room && !known {
		l.asked[name] = reason
	} else {
		known = true
	}
	l.mu.Unlock()
	if err != nil && !known {
		c.log.Warn("packets have no next hop", "address", name, "reason", err)
	}
}

// forget ends a period of the addresses that packets had. An address that has still no next
// hop, although it has a route, is logged.
func (c *Controller) forget() {
	l := &c.lacking
	l.mu.Lock()
	l.before, l.asked = l.asked, map[string]string{}
	silent := []string{}
	for addr, reason := range l.before {
		if reason == "" {
			silent = append(silent, addr)
		}
	}
	l.mu.Unlock()
	slices.Sort(silent)
	for _, addr := range silent {
		c.log.Warn("packets have no next hop", "address", addr, "reason", "its neighbour does not answer")
	}
}
