package farm

import (
	"cmp"
	"net/netip"
	"slices"

	"proffer/config"
	"proffer/topo"
	"proffer/wire"
)

// Local is what only the host of a node knows.
type Local struct {
	Link string // that has the node's address
	CPUs int
}

// LB is the configuration of the LB on a node.
func (f *Farm) LB(n *Node, s *Secrets, local Local) *topo.LB {
	lb := &topo.LB{Node: f.topoNode(n, s, local), Flows: n.flows(262144), CandidateKey: s.Candidate}
	lb.State = cmp.Or(n.State, "/var/lib/proffer/lb-"+n.Name+".json")
	for _, b := range f.bounds() {
		svc := f.service(&b)
		config.SortPools(&svc)
		lb.Services = append(lb.Services, svc)
	}
	return lb
}

// Agent is the configuration of the agent on a server.
func (f *Farm) Agent(n *Node, s *Secrets, local Local) *topo.Agent {
	agent := &topo.Agent{Node: f.topoNode(n, s, local), Flows: n.flows(65536)}
	for _, b := range f.bounds() {
		if m := b.of.memberOf(n.Name); m != nil {
			agent.Services = append(agent.Services, b.offering(m))
		}
	}
	config.CompleteAgent(agent, local.CPUs)
	return agent
}

// memberOf is the member that a node is; nil: it is none.
func (s *Service) memberOf(node string) *Member {
	if i := slices.IndexFunc(s.Members, func(m Member) bool { return m.Node == node }); i >= 0 {
		return &s.Members[i]
	}
	return nil
}

func (f *Farm) topoNode(n *Node, s *Secrets, local Local) topo.Node {
	t := topo.Node{Name: n.Name, Locator: n.Locator, Interface: cmp.Or(n.Link, local.Link), Control: n.control(), Pin: n.Pin}
	config.CompletePin(&t.Pin, n.Role().Daemon(), n.Name)
	t.Domain, t.Keys = f.domain(), keysOf(s, n)
	for i := range f.Nodes {
		if o := &f.Nodes[i]; o.Name != n.Name && o.Locator.IsValid() && o.At().Addr.IsValid() {
			t.Near = append(t.Near, topo.Neighbour{Locator: o.Locator, Addr: o.At().Addr, LB: o.Role() == LB})
		}
	}
	return t
}

// keysOf are an LB's keys with their masters, or a server's own, which are derived from the masters where the
// secrets have these.
func keysOf(s *Secrets, n *Node) []topo.SignalKey {
	keys := slices.Clone(s.Signals)
	if n.Role() == Server && s.Node == "" {
		for i := range keys {
			keys[i].Server = wire.ServerKey(keys[i].Server, n.Locator)
		}
	}
	return keys
}

func (n *Node) control() string {
	return cmp.Or(n.Control, "/run/proffer/"+n.Role().Daemon()+".sock")
}

// ControlSocket is the path of the node's control socket.
func (n *Node) ControlSocket() string { return n.control() }

// flows bounds the node's table, of so many entries where the file has no number.
func (n *Node) flows(entries int) topo.FlowTable {
	t := n.Flows
	t.Entries = cmp.Or(t.Entries, entries)
	return t
}

// sids is the block of addresses that is set aside for SIDs (RFC 9602).
var sids = netip.MustParsePrefix("5f00::/16")

// mostBlocks bounds the domain (MAX_BLOCKS of domain.h).
const mostBlocks = 16

// domain is the stated one, or that of the locators: it changes as seldom as can be, since programs are loaded with it.
func (f *Farm) domain() []netip.Prefix {
	if f.Open || len(f.Domain) > 0 {
		return f.Domain
	}
	var all []netip.Prefix
	inside := true
	for i := range f.Nodes {
		if l := f.Nodes[i].Locator; l.IsValid() {
			all = append(all, netip.PrefixFrom(l.Addr(), 48).Masked())
			inside = inside && sids.Contains(l.Addr())
		}
	}
	if inside {
		return []netip.Prefix{sids}
	}
	return joined(all, mostBlocks)
}

// joined are prefixes of one length that hold all of these, at most so many.
func joined(all []netip.Prefix, most int) []netip.Prefix {
	for {
		slices.SortFunc(all, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
		if all = slices.Compact(all); len(all) <= most {
			return all
		}
		for i, p := range all {
			all[i] = netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked()
		}
	}
}
