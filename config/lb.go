package config

import "proffer/topo"

// Limits of one service.
const (
	maxBuckets = 1 << 20
	maxHistory = 32
	maxVersion = 1<<53 - 1 // the last whole number that every reader of JSON has
	maxWeight  = 65535
)

// lbFile is the table of a load balancer's file.
func lbFile(lb *topo.LB) []entry {
	n := &lb.Node
	return []entry{
		need("node", mapping(node(n, optional("name", "lb", scalar(&n.Name, name()))))),
		optional("control", "/run/proffer/lb.sock", scalar(&n.Control, socket())),
		need("candidate_key", secret(&lb.CandidateKey, candidateKey())),
		signalKeys(n),
		optional("flow_table", "{}", mapping(flowTable(&lb.Flows, "262144", within(1, topo.MaxAge)))),
		need("services", sequence(&lb.Services, 1, topo.MaxServices, service)),
	}
}

// service has no fallback for its name: that is its VIP and port.
func service(s *topo.Service) []entry {
	offering := onlyWith("dispatch", topo.Dispatches(), topo.Dispatch.Offers, &s.Dispatch)
	return []entry{
		optional("name", "", scalar(&s.Name, name())),
		need("vip", scalar(&s.VIP.Addr, vip())),
		optional("protocol", "tcp", scalar(&s.VIP.Protocol, oneOf(topo.TCP, topo.UDP))),
		need("port", scalar(&s.VIP.Port, port())),
		need("dispatch", scalar(&s.Dispatch, oneOf(topo.Dispatches()...))),
		offering.optional("select", "hash", scalar(&s.Select, oneOf(topo.Hash, topo.Random))),
		offering.optional("choices", "2", scalar(&s.Choices, whole(1, topo.MaxChoices))),
		optional("buckets", "65537", scalar(&s.Buckets, whole(1, maxBuckets))),
		optional("wire", "encap", scalar(&s.Wire, oneOf(topo.Encap, topo.Insert))),
		optional("via", "", scalars(&s.Via, topo.MaxVia, sid())),
		optional("fragments", "drop", scalar(&s.Fragments, oneOf(topo.DropFragments, topo.HashFragments))),
		need("servers", sequence(&s.Servers, 1, MaxServers, server)),
		optional("version", "0", scalar(&s.Version, whole(0, maxVersion))),
		optional("history", "", sequence(&s.History, 1, maxHistory, version)),
	}
}

func server(s *topo.Server) []entry {
	return []entry{
		need("name", scalar(&s.Name, name())),
		need("locator", scalar(&s.Locator, locator())),
		optional("weight", "1", scalar(&s.Weight, whole(0, maxWeight))),
	}
}

func version(v *topo.Version) []entry {
	return []entry{
		need("version", scalar(&v.Version, whole(0, maxVersion))),
		need("servers", sequence(&v.Servers, 1, MaxServers, server)),
	}
}
