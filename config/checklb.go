package config

import (
	"fmt"
	"net/netip"

	"proffer/schema"
	"proffer/topo"
)

// mostAllowed leaves room for the lists of before, which a reload replaces.
const mostAllowed = topo.MaxAllowed / 2

// CheckLB finds the mistakes of a load balancer's file that no single value shows.
func CheckLB(d *schema.Document, lb *topo.LB) {
	checkNode(d, lb.Node)
	names, vips, hashed := unique[string]{}, unique[topo.VIP]{}, map[netip.Addr]string{}
	hosts := hosts{}
	learning, allowed := 0, 0
	for i, s := range lb.Services {
		at := fmt.Sprintf("services[%d]", i)
		names.add(d, at+".name", s.Name)
		vips.add(d, at+".vip", s.VIP)
		checkOutside(d, at+".vip", s.VIP.Addr, lb.Locator)
		checkWire(d, at, s)
		checkVia(d, at, s, lb.Locator)
		checkFragments(d, at, s, hashed)
		checkPools(d, at, s, lb, hosts)
		if allowed += len(s.Allow); allowed > mostAllowed {
			d.Failf(at+".allow", "makes %d prefixes of all services together; want at most %d", allowed, mostAllowed)
		}
		if s.Dispatch.Seats() {
			learning++
			checkLearning(d, at, s, learning)
		}
	}
	if len(hosts) > MaxServers {
		d.Failf("services", "have %d servers together, with those of their history; want at most %d", len(hosts), MaxServers)
	}
}

// checkWire: an SRH of the papers' kind speaks to an agent.
func checkWire(d *schema.Document, at string, s topo.Service) {
	if s.Wire == topo.Insert && !s.Dispatch.Offers() {
		d.Failf(at+".wire", "%q goes only with dispatch: %s; want encap", s.Wire, with(topo.Dispatches(), topo.Dispatch.Offers))
		return
	}
	checkFamily(d, at+".wire", s.Wire, s.VIP.Addr)
}

// checkLearning: the data plane has room for so many services that learn; s is the n-th, and
// their servers.
func checkLearning(d *schema.Document, at string, s topo.Service, n int) {
	if n > topo.MaxLearned {
		d.Failf(at+".dispatch", "%q is that of more than %d services; want another one", s.Dispatch, topo.MaxLearned)
	}
	if s.Signals() && s.VIP.Protocol == topo.UDP {
		d.Failf(at+".recovery", "%q goes with protocol: tcp where dispatch is %s, as each first datagram would ask all servers; want %s",
			s.Recovery, s.Dispatch, topo.HistoryRecovery)
	}
	if s.Signals() && len(s.Servers) > topo.MaxMembers {
		d.Failf(at+".servers", "are %d, and dispatch %s with recovery: %s asks at most %d", len(s.Servers), s.Dispatch, s.Recovery, topo.MaxMembers)
	}
	if len(s.Servers) > topo.MaxSeats {
		d.Failf(at+".servers", "are %d, and dispatch %s goes with at most %d", len(s.Servers), s.Dispatch, topo.MaxSeats)
	}
}

func checkVia(d *schema.Document, at string, s topo.Service, own netip.Prefix) {
	for i, sid := range s.Via {
		if own.Contains(sid) {
			d.Failf(fmt.Sprintf("%s.via[%d]", at, i), "%q lies in this LB's own locator %s; want the SID of a node on the way", sid, own)
		}
	}
}

// checkFragments: fragments show no ports, so all packets of a VIP go to
// the single pool that hashed has for it.
func checkFragments(d *schema.Document, at string, s topo.Service, hashed map[netip.Addr]string) {
	if s.Fragments != topo.HashFragments {
		return
	}
	first, taken := hashed[s.VIP.Addr]
	switch {
	case s.Dispatch.Tracks():
		d.Failf(at+".fragments", "%q goes only with dispatch: %s; want drop", s.Fragments, without(topo.Dispatches(), topo.Dispatch.Tracks))
	case taken:
		d.Failf(at+".fragments", "%q is already that of %s (line %d) at the vip %s, and fragments show no port; want drop here or there",
			s.Fragments, d.Key(first), d.Line(first), s.VIP.Addr)
	default:
		hashed[s.VIP.Addr] = at + ".fragments"
	}
}

// checkPools adds all servers, of now and before, to those of the farm.
func checkPools(d *schema.Document, at string, s topo.Service, lb *topo.LB, all hosts) {
	pool := func(list string, servers []topo.Server) {
		checkServers(d, list, servers, s.VIP.Addr, lb)
		for i := range servers {
			all.add(d, fmt.Sprintf("%s[%d]", list, i), &servers[i])
		}
	}
	checkDeliveries(d, at, s, all)
	pool(at+".servers", s.Servers)
	newer, holder := s.Version, at
	for i, v := range s.History {
		entry := fmt.Sprintf("%s.history[%d]", at, i)
		if v.Version >= newer {
			d.Failf(entry+".version", "%d is not below %d, the version of %s; want the newest pool first, and each version lower", v.Version, newer, d.Key(holder))
		}
		newer, holder = v.Version, entry
		pool(entry+".servers", v.Servers)
	}
}

func checkServers(d *schema.Document, list string, servers []topo.Server, vip netip.Addr, lb *topo.LB) {
	names, locators, addresses := unique[string]{}, unique[netip.Prefix]{}, unique[netip.Addr]{}
	for i, server := range servers {
		at := fmt.Sprintf("%s[%d]", list, i)
		names.add(d, at+".name", server.Name)
		if !server.Delivery.SRv6() {
			addresses.add(d, at+".address", server.Address)
			checkAddress(d, at+".address", server.Address, vip, lb)
			continue
		}
		locators.add(d, at+".locator", server.Locator)
		checkInside(d, at+".locator", server.Locator, lb.Domain)
		if server.Locator == lb.Locator {
			d.Failf(at+".locator", "%q is the locator of this LB; want the server's own", server.Locator)
		} else if server.Locator.Contains(vip) {
			d.Failf(at+".locator", "%q contains the service's vip %s; want a prefix of SIDs only", server.Locator, vip)
		}
	}
}
