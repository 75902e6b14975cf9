package farm

import (
	"cmp"
	"net/netip"
	"slices"

	"proffer/config"
	"proffer/topo"
)

// EdgeLB is the configuration of the edge LB on a node.
func (f *Farm) EdgeLB(n *Node, s *Secrets, local Local) *topo.EdgeLB {
	lb := &topo.EdgeLB{
		Name: n.Name, Control: n.control(), Pin: n.Pin, Clients: n.Clients, World: n.World, Balance: n.Balance, RecoverAll: n.RecoverAll,
		Public: n.Public, StartReplica: n.StartReplica, Key: s.Flow, ReportKey: s.Report, Flows: n.flows(262144),
	}
	config.CompletePin(&lb.Pin, "edge", n.Name)
	if lb.Public == nil {
		lb.Public = f.public()
	}
	for i := range f.Nodes {
		if o := &f.Nodes[i]; o.Role() == NF {
			lb.Nodes = append(lb.Nodes, topo.EdgeNode{Name: o.Name, Server: f.number(o), Addr: o.NF.Addr,
				Link: cmp.Or(o.EdgeLink, n.Link, local.Link), Cores: o.Cores, Weight: o.Weight})
		}
	}
	for i := range f.Chains {
		svc := f.Chains[i].EdgeService
		svc.Number = f.chainNumber(i)
		lb.Services = append(lb.Services, svc)
	}
	config.CompleteEdge(lb)
	return lb
}

// Datapath is the configuration of the nf on a node.
func (f *Farm) Datapath(n *Node, s *Secrets, local Local) *topo.Datapath {
	d := &topo.Datapath{
		Name: n.Name, Control: n.control(), Pin: n.Pin, Server: f.number(n), Link: cmp.Or(n.Link, local.Link), Cores: n.Cores, Spread: n.Spread,
		Clients: n.Prefixes, Idle: n.Flows.Idle, Linger: n.Flows.Linger, ReportKey: s.Report,
	}
	config.CompletePin(&d.Pin, "nf", n.Name)
	for i := range f.Nodes {
		if o := &f.Nodes[i]; o.Role() == Edge && o.Edge.Addr.IsValid() {
			d.LBs = append(d.LBs, o.Edge.Addr)
		}
	}
	for i := range f.Chains {
		c := &f.Chains[i]
		for _, p := range c.Prefixes {
			if n.Prefixes == nil && !slices.Contains(d.Clients, p) {
				d.Clients = append(d.Clients, p)
			}
		}
		if len(c.Functions) > 0 {
			d.Chains = append(d.Chains, topo.Chain{Service: f.chainNumber(i), Functions: n.functions(c.Functions)})
		}
	}
	return d
}

// functions are a chain's at a node, which may have ports of its own.
func (n *Node) functions(all []topo.Function) []topo.Function {
	all = slices.Clone(all)
	for i, fn := range all {
		if nat, is := fn.(topo.SourceNAT); is && n.NATPort != 0 {
			nat.First = n.NATPort
			all[i] = nat
		}
	}
	return all
}

// number is an nf's: its own, or its place among the nfs.
func (f *Farm) number(n *Node) int {
	if n.Number > 0 {
		return n.Number - 1
	}
	place := 0
	for i := range f.Nodes {
		if o := &f.Nodes[i]; o.Name == n.Name {
			break
		} else if o.Role() == NF {
			place++
		}
	}
	return place
}

// chainNumber is a chain's: its own, or its place from 1.
func (f *Farm) chainNumber(i int) int { return cmp.Or(f.Chains[i].Number, i+1) }

// public are the addresses that the chains' NAT gives to flows.
func (f *Farm) public() (all []netip.Prefix) {
	for _, c := range f.Chains {
		for _, fn := range c.Functions {
			nat, _ := fn.(topo.SourceNAT)
			for _, a := range []netip.Addr{nat.Public4, nat.Public6} {
				if p := netip.PrefixFrom(a, a.BitLen()); a.IsValid() && !slices.Contains(all, p) {
					all = append(all, p)
				}
			}
		}
	}
	return all
}
