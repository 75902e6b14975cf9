package config

import "proffer/topo"

// lbFile is the table of a load balancer's file.
func lbFile(lb *topo.LB) []entry {
	return []entry{
		need("node", mapping(lbNode(&lb.Node))),
		optional("control", "/run/proffer/lb.sock", scalar(&lb.Control, socket())),
		need("candidate_key", scalar(&lb.CandidateKey, candidateKey())),
		optional("flow_table", "{}", mapping(flowTable(&lb.Flows, "262144"))),
		need("services", sequence(&lb.Services, 1, MaxServices, service)),
	}
}

func lbNode(n *topo.Node) []entry {
	return []entry{
		optional("name", "lb", scalar(&n.Name, name())),
		need("locator", scalar(&n.Locator, locator())),
		need("interface", scalar(&n.Interface, link())),
	}
}

func flowTable(f *topo.FlowTable, entries string) []entry {
	return []entry{
		optional("entries", entries, scalar(&f.Entries, whole(64, 16777216))),
		optional("idle", "5m", scalar(&f.Idle, duration())),
		optional("linger", "10s", scalar(&f.Linger, duration())),
	}
}

// service has no fallback for its name: that is its VIP and port.
func service(s *topo.Service) []entry {
	hunting := &condition{"dispatch: hunt", func() bool { return s.Dispatch == topo.Hunt }}
	return []entry{
		optional("name", "", scalar(&s.Name, name())),
		need("vip", scalar(&s.VIP.Addr, vip())),
		optional("protocol", "tcp", assign(oneOf(tcp), func(protocol) {})),
		need("port", scalar(&s.VIP.Port, port())),
		need("dispatch", scalar(&s.Dispatch, oneOf(topo.Single, topo.Hunt))),
		hunting.optional("choices", "2", scalar(&s.Choices, whole(2, topo.MaxChoices))),
		need("servers", sequence(&s.Servers, 1, MaxServers, server)),
	}
}

// protocol is a key without a place yet: TCP is all there is.
type protocol string

const tcp protocol = "tcp"

func (p protocol) String() string { return string(p) }

func server(s *topo.Server) []entry {
	return []entry{
		need("name", scalar(&s.Name, name())),
		need("locator", scalar(&s.Locator, locator())),
	}
}
