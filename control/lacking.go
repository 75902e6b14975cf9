package control

import (
	"cmp"
	"fmt"
	"maps"
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
	silent  []string          // gateways that do not answer, at the last reading
	role    map[string]string // of both: the gateways on the way to a target, and a gateway's route
	retried int               // how many of them were asked for again
	asked   map[string]string // that packets had: the reason, by address, since the last refresh
	before  map[string]string // between the two refreshes before that
}

// Lacking lists the addresses that have no next hop, each with the reason if that is known:
// those that the plane must always know, gateways that do not answer, and those that packets had a moment ago.
func (c *Controller) Lacking() []string {
	l := &c.lacking
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []string
	for _, addr := range slices.Concat(l.targets, l.silent) {
		list = append(list, described(addr, l.role[addr]))
	}
	for _, some := range []map[string]string{l.asked, l.before} {
		for addr, reason := range some {
			if reason == "" {
				reason = l.role[addr]
			}
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

// lacks notes which targets have no next hop, and which gateways do not answer.
func (c *Controller) lacks(hops topo.NextHops, waiting topo.Waiting) (missing int) {
	c.lacking.mu.Lock()
	defer c.lacking.mu.Unlock()
	c.lacking.targets, c.lacking.role = nil, map[string]string{}
	named := map[netip.Addr]bool{}
	for _, t := range *c.targets.Load() {
		if _, ok := hops.Lookup(t); !ok {
			by := hops.By(t, waiting)
			c.lacking.targets = append(c.lacking.targets, t.String())
			c.lacking.role[t.String()] = ByGateways(by)
			for _, g := range by {
				named[g] = true
			}
		}
	}
	c.lacking.gateways(waiting, named)
	for _, some := range []map[string]string{c.lacking.asked, c.lacking.before} {
		for addr := range some {
			a := netip.MustParseAddr(addr)
			if _, ok := hops.Lookup(a); ok {
				delete(some, addr)
			} else if c.lacking.role[addr] == "" {
				c.lacking.role[addr] = ByGateways(hops.By(a, waiting))
			}
		}
	}
	return len(c.lacking.targets)
}

// gateways notes the gateways that do not answer, each with its shortest route, but for those named already.
func (l *lacking) gateways(waiting topo.Waiting, named map[netip.Addr]bool) {
	l.silent = nil
	routes := slices.SortedFunc(maps.Keys(waiting), func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(a.Bits(), b.Bits()), a.Addr().Compare(b.Addr()))
	})
	for _, r := range routes {
		for _, g := range waiting[r] {
			if !named[g] && len(l.silent) < mostLacking {
				named[g] = true
				l.silent, l.role[g.String()] = append(l.silent, g.String()), "the gateway of "+r.String()
			}
		}
	}
}

// ByGateways words the gateways that a target without a next hop waits for.
func ByGateways(all []netip.Addr) string {
	if len(all) == 0 {
		return ""
	}
	return "by gateway " + strings.Trim(fmt.Sprint(all), "[]")
}

// lost lists the targets without a next hop, and the gateways that do not answer, at the last reading.
func (c *Controller) lost() []string {
	c.lacking.mu.Lock()
	defer c.lacking.mu.Unlock()
	return slices.Concat(c.lacking.targets, c.lacking.silent)
}

// renew is update, and logs the targets and gateways that have lost their next hops, or have them again.
func (c *Controller) renew() error {
	before := c.lost()
	_, err := c.update()
	now := c.lost()
	if gone := except(now, before); len(gone) > 0 {
		c.log.Warn("next hops are lost", "missing", len(gone), "addresses", c.named(gone))
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

// named is someOf targets and gateways, with their roles.
func (c *Controller) named(list []string) string {
	c.lacking.mu.Lock()
	defer c.lacking.mu.Unlock()
	some := slices.Clone(list[:min(len(list), mostLacking)])
	for i, addr := range some {
		some[i] = described(addr, c.lacking.role[addr])
	}
	return someOf(some)
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
