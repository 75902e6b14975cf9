package farm

import (
	"fmt"
	"net/netip"
	"path"
	"slices"

	"proffer/config"
	"proffer/topo"
)

// checkNodes: each node has what its role needs.
func (c *checker) checkNodes() {
	domain := firsts[netip.Prefix]{}
	for i, p := range c.Domain {
		once(c, domain, c.element("domain", i), p, "each only once")
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		key := nodeKey(n)
		switch n.Role() {
		case LB:
			c.needLocator(n, "an lb has SIDs")
		case Server:
			c.checkServer(n)
		case Edge:
			c.checkEdgeNode(n)
		case NF:
			if n.NF.Routed {
				c.Failf(key+".nf", "%q names no address, at which the edge LBs reach it; want its address", routed)
			}
		}
		if at := n.At(); at.Routed && n.Role() != NoRole && n.Link == "" && c.Right(key+".link") {
			c.Failf(key, "states no link, and %s: %s no address to find it by; want the key link, or an address", n.Role(), routed)
		}
	}
}

func (c *checker) needLocator(n *Node, why string) {
	key := nodeKey(n) + ".locator"
	switch {
	case n.Locator.IsValid() && len(c.Domain) > 0 && !slices.ContainsFunc(c.Domain, n.Locator.Overlaps):
		c.Failf(key, "%q lies outside domain (line %d), so this node's packets would be dropped; want a locator inside, or its prefix in the domain", n.Locator, c.Line("domain"))
	case !n.Locator.IsValid() && c.Right(key):
		c.Failf(key, "is missing, and %s; want %s", why, config.Locator().Want)
	}
}

func (c *checker) checkServer(n *Node) {
	key := nodeKey(n)
	if !c.Right(key+".delivery") || len(n.Deliveries) == 0 {
		return
	}
	d := n.Deliveries[0]
	if len(n.Deliveries) > 1 && !d.EndsOther(n.Deliveries[1]) {
		c.Failf(key+".delivery[1]", "%q does not go with %s; want dt6 or dx6 together with dx4, or one delivery", n.Deliveries[1], d)
	}
	switch {
	case d.SRv6():
		c.needLocator(n, "delivery: "+d.String()+" sends packets to a SID")
	case n.Locator.IsValid():
		c.Failf(key+".locator", "does not go with delivery: %s, which sends packets to the server's address; remove it", d)
	}
	if d.Addressed() && n.Server.Routed {
		c.Failf(key+".server", "%q names no address, to which delivery: %s sends packets; want the server's address", routed, d)
	}
}

func (c *checker) checkEdgeNode(n *Node) {
	key := nodeKey(n)
	if n.World != "" && n.World == n.Clients {
		c.Failf(key+".world", "%q is the link to the client network (line %d), too; want another one", n.World, c.Line(key+".clients"))
	}
	if n.Link != "" && (n.Link == n.Clients || n.Link == n.World) {
		c.Failf(key+".link", "%q is the link to the client network or the world; want that to the nfs", n.Link)
	}
	if start := n.StartReplica; len(start) > 0 && !path.IsAbs(start[0]) && c.Right(key+".replica") {
		c.Failf(key+".replica[0]", "%q is no absolute path; want that of a program, as the daemon has no search path", start[0])
	}
}

// checkEdges: edge LBs have nfs and chains, and no two nfs give flows the same ports.
func (c *checker) checkEdges() {
	edges, nfs := c.has(Edge), c.has(NF)
	if edges && !nfs && c.Right("nodes") {
		c.Failf("nodes", "have an edge LB and no nf, to which it sends flows; want a node with the key nf")
	}
	if (edges || nfs) && len(c.Chains) == 0 && c.Right("chains") {
		c.Failf("nodes", "have an edge LB or nf, and the file no chains; want the key chains")
	}
	if len(c.Chains) > 0 && !edges && c.Right("nodes") {
		c.Failf("chains", "have no edge LB; want a node with the key edge")
	}
	prefixes, numbers := firsts[netip.Prefix]{}, firsts[int]{}
	for i := range c.Chains {
		ch := &c.Chains[i]
		once(c, numbers, chainKey(ch), c.chainNumber(i), "a number that the chain alone has")
		for j, p := range ch.Prefixes {
			if p.IsValid() {
				once(c, prefixes, c.element(chainKey(ch)+".prefixes", j), p, "each prefix in one chain")
			}
		}
	}
	c.checkNAT()
}

// natRange are the ports that a node gives to flows of an address.
type natRange struct {
	node        *Node
	first, last int
}

func (c *checker) checkNAT() {
	ranges := map[netip.Addr][]natRange{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Role() != NF || !c.Right(nodeKey(n)+".first_port") {
			continue
		}
		for j := range c.Chains {
			for k, fn := range n.functions(c.Chains[j].Functions) {
				if nat, is := fn.(topo.SourceNAT); is && c.Right(fmt.Sprintf("%s.functions[%d]", chainKey(&c.Chains[j]), k)) {
					c.overlap(ranges, nat.Public4, natRange{n, nat.First, nat.First + max(n.Cores, 1)*nat.Ports - 1})
					c.overlap(ranges, nat.Public6, natRange{n, nat.First, nat.First + max(n.Cores, 1)*nat.Ports - 1})
				}
			}
		}
	}
}

func (c *checker) overlap(ranges map[netip.Addr][]natRange, public netip.Addr, r natRange) {
	if !public.IsValid() {
		return
	}
	for _, o := range ranges[public] {
		if o.node != r.node && o.first <= r.last && r.first <= o.last {
			c.Failf(nodeKey(r.node)+".first_port", "is needed: source NAT gives ports %d to %d of %s at %s, too (line %d); want ports of its own",
				r.first, r.last, public, o.node.Name, c.Line(nodeKey(o.node)))
			return
		}
	}
	ranges[public] = append(ranges[public], r)
}
