package config

import (
	"fmt"
	"net/netip"

	"proffer/topo"
)

// checkLB finds what no single value of a load balancer's file shows.
func checkLB(d *document, lb *topo.LB) {
	names, vips := unique[string]{}, unique[topo.VIP]{}
	servers := 0
	for i, s := range lb.Services {
		at := fmt.Sprintf("services[%d]", i)
		names.add(d, at+".name", s.Name)
		vips.add(d, at+".vip", s.VIP)
		checkOutside(d, at+".vip", s.VIP.Addr, lb.Locator)
		checkServers(d, at+".servers", s, lb.Locator)
		servers += len(s.Servers)
	}
	if servers > MaxServers {
		d.failKey("services", "have %d servers together; want at most %d", servers, MaxServers)
	}
}

func checkServers(d *document, list string, s topo.Service, own netip.Prefix) {
	names, locators := unique[string]{}, unique[netip.Prefix]{}
	for i, server := range s.Servers {
		at := fmt.Sprintf("%s[%d]", list, i)
		names.add(d, at+".name", server.Name)
		locators.add(d, at+".locator", server.Locator)
		if server.Locator == own {
			d.failKey(at+".locator", "%q is the locator of this LB; want the server's own", server.Locator)
		} else if server.Locator.Contains(s.VIP.Addr) {
			d.failKey(at+".locator", "%q contains the service's vip %s; want a prefix of SIDs only", server.Locator, s.VIP.Addr)
		}
	}
}

// checkAgent finds what no single value of an agent's file shows.
func checkAgent(d *document, a *topo.Agent) {
	names, vips := unique[string]{}, unique[topo.VIP]{}
	for i, o := range a.Services {
		at := fmt.Sprintf("services[%d]", i)
		names.add(d, at+".name", o.Name)
		vips.add(d, at+".vip", o.VIP)
		checkOutside(d, at+".vip", o.VIP.Addr, a.Locator)
		if o.Acceptance == topo.Dynamic && o.Threshold > o.Workers {
			d.failKey(at+".dynamic.initial", "%d is above workers, %d; want a whole number from 0 to %[2]d", o.Threshold, o.Workers)
		}
	}
}

func checkOutside(d *document, key string, vip netip.Addr, own netip.Prefix) {
	if own.Contains(vip) {
		d.failKey(key, "%q lies in this node's locator %s; want an address outside, for SIDs fill that prefix", vip, own)
	}
}

// unique remembers who has a value that only one may have.
type unique[T comparable] map[T]string

func (u unique[T]) add(d *document, key string, v T) {
	if first, taken := u[v]; taken {
		d.failKey(key, "\"%v\" is already that of %s (line %d); want each only once", v, first, d.locate(first).line)
		return
	}
	u[v] = key
}
