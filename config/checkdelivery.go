package config

import (
	"fmt"
	"net/netip"

	"proffer/schema"
	"proffer/topo"
)

// checkDeliveries: a delivery takes packets of the service's family, and all servers of a service
// with signals have agents.
func checkDeliveries(d *schema.Document, at string, s topo.Service, all hosts) {
	for i := range s.Servers {
		server, key := &s.Servers[i], fmt.Sprintf("%s.servers[%d]", at, i)
		is := server.Delivery
		switch {
		case is != topo.ByAgent && s.Dispatch.Signals():
			d.Failf(key+".delivery", "%q has no agent, which dispatch: %s needs; want agent, or dispatch: %s",
				is, s.Dispatch, without(topo.Dispatches(), needsAgents))
		case is != topo.ByAgent && s.Dispatch.Polls():
			d.Failf(key+".delivery", "%q has no agent, which dispatch: %s asks for its load; want agent, or dispatch: %s",
				is, s.Dispatch, without(topo.Dispatches(), needsAgents))
		case is != topo.ByAgent && s.Signals():
			d.Failf(key+".delivery", "%q has no agent, which recovery: %s needs; want agent, or recovery: %s", is, s.Recovery, topo.HistoryRecovery)
		case !is.Takes(s.VIP.Addr):
			d.Failf(key+".delivery", "%q takes no packets for the vip %s; want %s", is, s.VIP.Addr,
				with(topo.Deliveries(), func(d topo.Delivery) bool { return d.Takes(s.VIP.Addr) }))
		case !is.SRv6() && len(s.Via) > 0:
			d.Failf(key+".delivery", "%q visits no SIDs, and via (line %d) has some; want %s, or no via", is, d.Line(at+".via"),
				with(topo.Deliveries(), func(o topo.Delivery) bool { return o.SRv6() && o.Takes(s.VIP.Addr) }))
		}
		all.same(d, key, server)
	}
}

// needsAgents: the mode goes with servers that have an agent.
func needsAgents(d topo.Dispatch) bool { return d.Signals() || d.Polls() }

// checkAddress: the address of a server is not the VIP, and no SID.
func checkAddress(d *schema.Document, key string, address, vip netip.Addr, lb *topo.LB) {
	switch {
	case address == vip:
		d.Failf(key, "%q is the service's vip; want an address that the server alone has", address)
	case lb.Locator.Contains(address):
		d.Failf(key, "%q lies in this LB's locator %s; want the server's own address", address, lb.Locator)
	}
}

// hosts are the servers of all services and their history, by identity.
type hosts map[[8]byte]firstHost

// firstHost is a server, and the key that names it first in a pool of today.
type firstHost struct {
	at    string
	first *topo.Server
}

// add counts a server.
func (h hosts) add(d *schema.Document, key string, s *topo.Server) {
	known, is := h[s.ID()]
	if is && known.first != nil && known.first.At() != s.At() {
		d.Failf(key, "%s and %s, the server at line %d, are alike by their hash; want another address", s.At(), known.first.At(), d.Line(known.at))
	}
	if !is {
		h[s.ID()] = firstHost{}
	}
}

// same: packets of all services reach a server in one way, but that its kernel may end a SID for
// each family.
func (h hosts) same(d *schema.Document, key string, s *topo.Server) {
	known := h[s.ID()]
	if known.first == nil {
		h[s.ID()] = firstHost{key, s}
		return
	}
	a, b := known.first, s
	switch {
	case a.Delivery == b.Delivery && (a.VNI != b.VNI || a.MAC != b.MAC):
		d.Failf(key, "has another vni or mac than the server at line %d, at the same address; want one device for all services", d.Line(known.at))
	case a.Delivery == b.Delivery || a.Delivery.EndsOther(b.Delivery):
	default:
		d.Failf(key+".delivery", "%q is not that of the server at line %d, %s, which is the same host; want %[3]s, or another locator or address",
			b.Delivery, d.Line(known.at), a.Delivery)
	}
}
