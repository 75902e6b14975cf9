package config

import (
	"time"

	"proffer/schema"
	"proffer/topo"
)

// Limits of one service.
const (
	maxBuckets = 1 << 20
	maxHistory = 32
	maxVersion = 1<<53 - 1 // the last whole number that every reader of JSON has
	maxWeight  = 65535
	maxVNI     = 1<<24 - 1 // RFC 7348 §5

	// deviceMAC is the link address of each server's vxlan device: no two are on one link.
	deviceMAC = "02:00:00:00:00:01"
)

// lbFile is the table of a load balancer's file.
func lbFile(lb *topo.LB) []schema.Entry {
	n := &lb.Node
	return []schema.Entry{
		schema.Need("node", schema.Mapping(node(n, schema.Optional("name", "lb", schema.Name().Into(&n.Name))))),
		schema.Optional("control", "/run/proffer/lb.sock", socket().Into(&n.Control)),
		schema.Optional("state", "", state().Into(&lb.State)),
		schema.Need("candidate_key", candidateKey().Secret(&lb.CandidateKey)),
		signalKeys(n),
		schema.Optional("flow_table", "{}", schema.Mapping(flowTable(&lb.Flows, "262144", schema.Within(1, topo.MaxAge)))),
		schema.Need("services", schema.Sequence(&lb.Services, 1, topo.MaxServices, service)),
	}
}

// service has no fallback for its name: that is its VIP and port.
func service(s *topo.Service) []schema.Entry {
	offering := onlyWith("dispatch", topo.Dispatches(), topo.Dispatch.Offers, &s.Dispatch)
	recovering := onlyWith("dispatch", topo.Dispatches(), topo.Dispatch.Recovers, &s.Dispatch)
	learning := onlyWith("dispatch", topo.Dispatches(), topo.Dispatch.Learns, &s.Dispatch)
	s.Recovery = unstated
	return []schema.Entry{
		schema.Optional("name", "", schema.Name().Into(&s.Name)),
		schema.Need("vip", vip().Into(&s.VIP.Addr)),
		schema.Optional("protocol", "tcp", schema.OneOf(topo.TCP, topo.UDP).Into(&s.VIP.Protocol)),
		port(&s.VIP.Port),
		schema.Need("dispatch", schema.OneOf(topo.Dispatches()...).Into(&s.Dispatch)),
		offering.Optional("select", "hash", schema.OneOf(topo.Hash, topo.Random).Into(&s.Select)),
		offering.Optional("choices", "2", schema.Whole(1, topo.MaxChoices).Into(&s.Choices)),
		schema.Optional("buckets", "65537", schema.Whole(1, maxBuckets).Into(&s.Buckets)),
		schema.Optional("wire", "encap", schema.OneOf(topo.Encap, topo.Insert).Into(&s.Wire)),
		schema.Optional("via", "", sid().List(&s.Via, topo.MaxVia)),
		schema.Optional("fragments", "drop", schema.OneOf(topo.DropFragments, topo.HashFragments).Into(&s.Fragments)),
		recovering.Optional("recovery", "", schema.OneOf(topo.HistoryRecovery, topo.AgentsRecovery).Into(&s.Recovery)),
		learning.Optional("learn_every", "500ms", schema.Within(100*time.Millisecond, time.Minute).Into(&s.LearnEvery)),
		schema.Need("servers", schema.Sequence(&s.Servers, 0, MaxServers, server)),
		schema.Optional("version", "0", schema.Whole(0, maxVersion).Into(&s.Version)),
		schema.Optional("history", "", schema.Sequence(&s.History, 1, maxHistory, version)),
	}
}

// unstated is the recovery of a service that its file does not state.
const unstated topo.Recovery = 255

// completeRecovery has agents asked where all servers have some, and their number allows it.
func completeRecovery(s *topo.Service) {
	if s.Recovery != unstated {
		return
	}
	s.Recovery = topo.HistoryRecovery
	if s.Dispatch.Recovers() && s.VIP.Protocol == topo.TCP && s.AllAsked() && len(s.Servers) <= topo.MaxMembers {
		s.Recovery = topo.AgentsRecovery
	}
}

func server(s *topo.Server) []schema.Entry {
	routed := onlyWith("delivery", topo.Deliveries(), topo.Delivery.SRv6, &s.Delivery)
	addressed := onlyWith("delivery", topo.Deliveries(), topo.Delivery.Addressed, &s.Delivery)
	tunnelled := onlyWith("delivery", topo.Deliveries(), topo.Delivery.Tunnel, &s.Delivery)
	return []schema.Entry{
		schema.Need("name", schema.Name().Into(&s.Name)),
		schema.Optional("delivery", "agent", schema.OneOf(topo.Deliveries()...).Into(&s.Delivery)),
		routed.Need("locator", locator().Into(&s.Locator)),
		addressed.Need("address", hostAddress("server").Into(&s.Address)),
		tunnelled.Need("vni", schema.Whole(1, maxVNI).Into(&s.VNI)),
		tunnelled.Optional("mac", deviceMAC, mac().Into(&s.MAC)),
		schema.Optional("weight", "1", schema.Whole(0, maxWeight).Into(&s.Weight)),
	}
}

func version(v *topo.Version) []schema.Entry {
	return []schema.Entry{
		schema.Need("version", schema.Whole(0, maxVersion).Into(&v.Version)),
		schema.Need("servers", schema.Sequence(&v.Servers, 0, MaxServers, server)),
	}
}
