package config

import (
	"fmt"
	"net/netip"

	"proffer/schema"
	"proffer/topo"
)

// CheckAgent finds the mistakes of an agent's file that no single value shows.
func CheckAgent(d *schema.Document, a *topo.Agent) {
	checkNode(d, a.Node)
	names, vips := unique[string]{}, unique[topo.VIP]{}
	elsewhere := without(topo.Loads(), topo.Load.Sockets)
	for i, o := range a.Services {
		at := fmt.Sprintf("services[%d]", i)
		names.add(d, at+".name", o.Name)
		vips.add(d, at+".vip", o.VIP)
		checkOutside(d, at+".vip", o.VIP.Addr, a.Locator)
		checkFamily(d, at+".wire", o.Wire, o.VIP.Addr)
		if o.Acceptance.Adapts() && o.Threshold > o.Workers {
			d.Failf(at+".dynamic.initial", "%d is above workers, %d; want a whole number from 0 to %[2]d", o.Threshold, o.Workers)
		}
		checkSource(d, at, &o)
		switch {
		case !o.Measure.Sockets():
		case o.VIP.Protocol == topo.UDP:
			d.Failf(at+".load", "%q counts open connections, and udp has none; want %s", o.Measure, elsewhere)
		case o.Owner != topo.Socket:
			d.Failf(at+".load", "%q counts the sockets of this namespace, and owner is %s; want %s", o.Measure, o.Owner, elsewhere)
		}
	}
}

func checkNode(d *schema.Document, n topo.Node) {
	domain := unique[netip.Prefix]{}
	for i, p := range n.Domain {
		domain.add(d, fmt.Sprintf("node.domain[%d]", i), p)
	}
	checkInside(d, "node.locator", n.Locator, n.Domain)
}

// checkInside: packets of a node outside the domain are dropped. An empty domain is every
// address.
func checkInside(d *schema.Document, key string, locator netip.Prefix, domain []netip.Prefix) {
	if len(domain) == 0 || !locator.IsValid() {
		return
	}
	for _, p := range domain {
		if p.Overlaps(locator) {
			return
		}
	}
	d.Failf(key, "%q lies outside %s (line %d), so this node's packets would be dropped; want a locator inside, or its prefix in the domain", locator, d.Key("node.domain"), d.Line("node.domain"))
}

// checkFamily: an SRH of the papers' kind ends with the client's own destination,
// which is IPv6.
func checkFamily(d *schema.Document, key string, w topo.Wire, vip netip.Addr) {
	if w == topo.Insert && vip.Is4() {
		d.Failf(key, "%q needs IPv6 packets, and the vip is %s; want encap", w, vip)
	}
}

func checkOutside(d *schema.Document, key string, vip netip.Addr, own netip.Prefix) {
	if own.Contains(vip) {
		d.Failf(key, "%q lies in this node's locator %s; want an address outside, for SIDs fill that prefix", vip, own)
	}
}

// unique maps each value to the key that has it, where only a single key may.
type unique[T comparable] map[T]string

func (u unique[T]) add(d *schema.Document, key string, v T) {
	if first, taken := u[v]; taken {
		d.Failf(key, "\"%v\" is already that of %s (line %d); want each only once", v, d.Key(first), d.Line(first))
		return
	}
	u[v] = key
}
