package config

import (
	"time"

	"proffer/schema"
	"proffer/topo"
)

// Limits of a service.
const (
	maxBuckets = 1 << 20
	maxHistory = 32
	maxVersion = 1<<53 - 1 // the last whole number that every reader of JSON has
	maxWeight  = 65535
	maxVNI     = 1<<24 - 1 // RFC 7348 §5
	maxAllowed = 1024      // prefixes of clients

	// DeviceMAC is the link address of each server's vxlan device: no two are on one link.
	DeviceMAC = "02:00:00:00:00:01"
)

// lbFile is the table of a load balancer's file.
func lbFile(lb *topo.LB) []schema.Entry {
	n := &lb.Node
	return []schema.Entry{
		schema.Need("node", schema.Mapping(node(n, "lb", "5f00:0:1:1::/64", schema.Optional("name", "lb", schema.Name().Into(&n.Name),
			"Name in counters and logs.").Eg("lb1"))), "This machine in the SR domain."),
		control("lb", &n.Control),
		schema.Optional("state", "", StateFile().Into(&lb.State),
			"File that records the pools served; /var/lib/proffer/lb-NAME.json when absent.").Eg("/var/lib/proffer/lb-lb1.json"),
		schema.Need("candidate_key", CandidateKey().Secret(&lb.CandidateKey),
			"Secret of the lists of candidates: the same on every LB, never rotated. Make it with `openssl rand -hex 16`; put it in quotes."),
		signalKeys(n),
		schema.Optional("flow_table", "{}", schema.Mapping(flowTable(&lb.Flows, "262144", schema.Within(1, topo.MaxAge))),
			"Bounds of the flows that this LB remembers."),
		schema.Need("services", schema.Sequence(&lb.Services, 1, topo.MaxServices, service), "The VIPs that this LB serves."),
	}
}

// service has no fallback for its name: that is its VIP and port.
func service(s *topo.Service) []schema.Entry {
	return append(append(vipKeys(&s.Name, &s.VIP), ServiceRows(s)...), pools(s)...)
}

// ServiceRows are the keys of how a service's packets are spread.
func ServiceRows(s *topo.Service) []schema.Entry {
	dispatches := topo.Dispatches()
	offering := schema.When("dispatch", having(dispatches, topo.Dispatch.Offers)...)
	recovering := schema.When("dispatch", having(dispatches, topo.Dispatch.Recovers)...)
	learning := schema.When("dispatch", having(dispatches, topo.Dispatch.Learns)...)
	return []schema.Entry{
		schema.Need("dispatch", schema.OneOfApart("for comparison", topo.Dispatch.Comparison, dispatches...).Telling(told(dispatches, topo.Dispatch.String, topo.Dispatch.Meaning)).Into(&s.Dispatch),
			"How new flows are spread.").Eg(spelt(topo.Hunt, dispatches)...),
		offering.Optional("select", "hash", schema.OneOf(topo.Hash, topo.Random).Into(&s.Select),
			"How lists come about. hash: consistent hashing. random: drawn, the same at every LB."),
		offering.Optional("choices", "2", schema.Whole(1, topo.MaxChoices).Into(&s.Choices), "Candidates in an offer."),
		schema.Optional("buckets", "65537", schema.Whole(1, maxBuckets).Into(&s.Buckets),
			"Lists in the service's table. The same on every LB; never changed while flows live."),
		schema.Optional("wire", "encap", schema.OneOf(topo.Encap, topo.Insert).Into(&s.Wire),
			"How segments travel. encap: in an outer IPv6 header. insert: in an SRH inside the client's IPv6 packet; only with dispatch: hunt and an IPv6 vip."),
		schema.Optional("via", "", sid().List(&s.Via, topo.MaxVia), "Transit SIDs on the way to the candidates."),
		schema.Optional("fragments", "drop", schema.OneOf(topo.DropFragments, topo.HashFragments).Into(&s.Fragments),
			"IP fragments, which show no ports. drop: dropped and counted. hash: all packets of the service go by their addresses alone; only with dispatch: "+
				without(dispatches, topo.Dispatch.Tracks)+", and for one service of a vip."),
		recovering.Optional("recovery", "", schema.OneOf(topo.HistoryRecovery, topo.AgentsRecovery).Into(&s.Recovery),
			"The server of a flow without an entry, as after a change of the LB. history: by its hash in the oldest pool. agents: the owner; every server has an agent. Default: agents for protocol: tcp with 1 to 240 servers that all have delivery: agent, else history."),
		schema.Optional("affinity", "none", schema.OneOf(topo.NoAffinity, topo.ClientAffinity).Into(&s.Affinity),
			"The server of new connections. client: the server of the client's others, while it gets new flows; with dispatch: "+
				without(dispatches, topo.Dispatch.Remembers)+" by a hash of the client's address. The same on every LB."),
		schema.When("affinity", topo.ClientAffinity.String()).Optional("affinity_time", "5m", schema.Within(time.Second, topo.MaxAge).Into(&s.AffinityTime),
			"A client without packets for this long is forgotten."),
		schema.Optional("allow", "", Network().List(&s.Allow, maxAllowed), "Prefixes of the clients that are served. Default: all.").Eg(`["2001:db8::/32"]`),
		learning.Optional("learn_every", "500ms", schema.Within(100*time.Millisecond, time.Minute).Into(&s.LearnEvery),
			"Time between two steps of learning."),
	}
}

// pools are the keys of a service that its record has, too.
func pools(s *topo.Service) []schema.Entry {
	return []schema.Entry{
		schema.Need("servers", schema.Sequence(&s.Servers, 0, MaxServers, server),
			"Hosts that take flows, in any order; with none packets are dropped. At most 4096 over all services and their history."),
		PoolNumberRow(s),
		EarlierRow(s),
	}
}

// PoolNumberRow is the number of a service's pool.
func PoolNumberRow(s *topo.Service) schema.Entry {
	return schema.Optional("version", "0", PoolNumber().Into(&s.Version), "Number of the pool; higher than that of every pool before.").Eg("2")
}

// EarlierRow is the pools of a service before.
func EarlierRow(s *topo.Service) schema.Entry {
	return schema.Optional("history", "", schema.Sequence(&s.History, 1, maxHistory, version),
		"The pools before, the newest first, each with a lower version: flows of them are recovered. The same on every LB.")
}

func PoolNumber() schema.Kind[int] { return schema.Whole(0, maxVersion) }

// CompleteRecovery has agents asked where all servers have some, and their number allows it.
func CompleteRecovery(s *topo.Service) {
	s.Recovery = topo.HistoryRecovery
	if s.Dispatch.Recovers() && s.VIP.Protocol == topo.TCP && s.AllAsked() && len(s.Servers) <= topo.MaxMembers {
		s.Recovery = topo.AgentsRecovery
	}
}

func server(s *topo.Server) []schema.Entry {
	deliveries := topo.Deliveries()
	routed := schema.When("delivery", having(deliveries, topo.Delivery.SRv6)...)
	addressed := schema.When("delivery", having(deliveries, topo.Delivery.Addressed)...)
	tunnelled := schema.When("delivery", having(deliveries, topo.Delivery.Tunnel)...)
	return []schema.Entry{
		schema.Need("name", schema.Name().Into(&s.Name), "Name in counters and logs.").Eg("s1"),
		schema.Optional("delivery", "agent", Deliveries().Into(&s.Delivery), "How the server gets its packets."),
		routed.Need("locator", Locator().Into(&s.Locator), "Prefix of every SID of the server.").Eg(`"5f00:0:2:1::/64"`),
		addressed.Need("address", HostAddress("server").Into(&s.Address), "The server's address; with delivery: l2 a neighbour on the LB's link."),
		tunnelled.Need("vni", VXLANNetwork().Into(&s.VNI), "VXLAN network of the server's vxlan device.").Eg("100"),
		tunnelled.Optional("mac", DeviceMAC, LinkAddress().Into(&s.MAC), "Link address of the server's vxlan device."),
		schema.Optional("weight", "1", Weight().Into(&s.Weight), "Its share of new flows; 0 drains it."),
	}
}

// Deliveries accepts each.
func Deliveries() schema.Kind[topo.Delivery] {
	all := topo.Deliveries()
	return schema.OneOf(all...).Telling(told(all, topo.Delivery.String, topo.Delivery.Meaning))
}

// Weight is that of a server or node.
func Weight() schema.Kind[int] { return schema.Whole(0, maxWeight) }

// VXLANNetwork is the number of a VXLAN network.
func VXLANNetwork() schema.Kind[int] { return schema.Whole(1, maxVNI) }

func version(v *topo.Version) []schema.Entry {
	return []schema.Entry{
		schema.Need("version", PoolNumber().Into(&v.Version), "Number of the pool.").Eg("1"),
		schema.Need("servers", schema.Sequence(&v.Servers, 0, MaxServers, server), "The servers of that pool."),
	}
}
