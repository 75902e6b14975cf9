package control

import (
	"cmp"
	"fmt"
	"log/slog"
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

// lacked is Lacking of a link.
func (l *link) lacked() (list []string) {
	k := &l.lacking
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, addr := range slices.Concat(k.targets, k.silent) {
		list = append(list, l.described(addr, k.role[addr]))
	}
	for _, some := range []map[string]string{k.asked, k.before} {
		for addr, reason := range some {
			list = append(list, l.described(addr, cmp.Or(reason, k.role[addr])))
		}
	}
	return list
}

// described is an address with its link, where there are several, and a reason.
func (l *link) described(addr, reason string) string {
	return described(addr, strings.TrimSpace(l.label+" "+reason))
}

func described(addr, reason string) string {
	if reason == "" {
		return addr
	}
	return addr + " (" + reason + ")"
}

// lacks notes which targets have no next hop, and which gateways do not answer.
func (l *link) lacks(hops topo.NextHops, waiting topo.Waiting) (missing int) {
	l.lacking.mu.Lock()
	defer l.lacking.mu.Unlock()
	l.lacking.targets, l.lacking.role = nil, map[string]string{}
	named := map[netip.Addr]bool{}
	for _, t := range l.targets {
		if _, ok := hops.Lookup(t); !ok {
			by := hops.By(t, waiting)
			l.lacking.targets = append(l.lacking.targets, t.String())
			l.lacking.role[t.String()] = byGateways(by)
			for _, g := range by {
				named[g] = true
			}
		}
	}
	l.lacking.gateways(waiting, named)
	for _, some := range []map[string]string{l.lacking.asked, l.lacking.before} {
		for addr := range some {
			a := netip.MustParseAddr(addr)
			if _, ok := hops.Lookup(a); ok {
				delete(some, addr)
			} else if l.lacking.role[addr] == "" {
				l.lacking.role[addr] = byGateways(hops.By(a, waiting))
			}
		}
	}
	return len(l.lacking.targets)
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

// byGateways words the gateways that a target without a next hop waits for.
func byGateways(all []netip.Addr) string {
	if len(all) == 0 {
		return ""
	}
	return "by gateway " + strings.Trim(fmt.Sprint(all), "[]")
}

// lost lists the targets without a next hop, and the gateways that do not answer, at the last reading.
func (l *link) lost() []string {
	l.lacking.mu.Lock()
	defer l.lacking.mu.Unlock()
	return slices.Concat(l.lacking.targets, l.lacking.silent)
}

// except lists the addresses that are not among others.
func except(list, others []string) []string {
	known := map[string]bool{}
	for _, a := range others {
		known[a] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(a string) bool { return known[a] })
}

// named is the first targets and gateways of a list, with their roles.
func (l *link) named(list []string) []string {
	l.lacking.mu.Lock()
	defer l.lacking.mu.Unlock()
	some := slices.Clone(list[:min(len(list), mostLacking)])
	for i, addr := range some {
		some[i] = l.described(addr, l.lacking.role[addr])
	}
	return some
}

// someOf bounds a list in the log.
func someOf(list []string) string {
	return strings.Join(list[:min(len(list), mostLacking)], " ")
}

// mostRetried bounds the requests of a second.
const mostRetried = 16

// toRetry are the next targets without a next hop to ask for.
func (k *lacking) toRetry() (addrs []netip.Addr) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range min(mostRetried, len(k.targets)) {
		addrs = append(addrs, netip.MustParseAddr(k.targets[(k.retried+i)%len(k.targets)]))
	}
	k.retried += mostRetried
	return addrs
}

// resolve asks for the neighbour of an address that packets had no next hop for. The log
// names an address that has no route, again after the next refresh.
func (l *link) resolve(addr netip.Addr, log *slog.Logger) {
	err := l.hops.Resolve(addr)
	k, name, reason := &l.lacking, addr.String(), ""
	if err != nil {
		reason = err.Error()
	}
	k.mu.Lock()
	_, known := k.asked[name]
	if room := len(k.asked) < mostLacking; room && !known {
		k.asked[name] = reason
	} else {
		known = true
	}
	k.mu.Unlock()
	if err != nil && !known {
		log.Warn("packets have no next hop", "address", name, "reason", err)
	}
}

// forget ends a period of the addresses that packets had. An address that has still no next
// hop, although it has a route, is logged.
func (l *link) forget(log *slog.Logger) {
	k := &l.lacking
	k.mu.Lock()
	k.before, k.asked = k.asked, map[string]string{}
	silent := []string{}
	for addr, reason := range k.before {
		if reason == "" {
			silent = append(silent, addr)
		}
	}
	k.mu.Unlock()
	slices.Sort(silent)
	for _, addr := range silent {
		log.Warn("packets have no next hop", "address", addr, "reason", "its neighbour does not answer")
	}
}
