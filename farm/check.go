package farm

import (
	"fmt"
	"net/netip"
	"slices"

	"proffer/schema"
	"proffer/topo"
)

// checker finds the mistakes that no single value shows. A value with a mistake of its own is left out, so that
// each mistake is told once, and all at once.
type checker struct {
	*schema.Document
	*Farm
	names []string // of the nodes
}

func check(d *schema.Document, f *Farm) {
	if !d.Given("nodes") && !d.Given("farm") {
		return // no YAML, or no farm
	}
	c := &checker{Document: d, Farm: f}
	for _, n := range f.Nodes {
		c.names = append(c.names, n.Name)
	}
	c.checkNodes()
	c.checkPlaces()
	c.checkServices()
	c.checkEdges()
	c.checkDerived()
}

func nodeKey(n *Node) string       { return "nodes." + n.Name }
func serviceKey(s *Service) string { return "services." + s.Name }
func chainKey(ch *Chain) string    { return "chains." + ch.Name }

// firsts maps each value to the key that has it first.
type firsts[T comparable] map[T]string

// once adds a value at a key, where only one key may have it.
func once[T comparable](c *checker, seen firsts[T], key string, v T, what string) {
	if first, taken := seen[v]; taken {
		c.Failf(key, "\"%v\" is already that of %s (line %d); want %s", v, first, c.Line(first), what)
		return
	}
	seen[v] = key
}

// checkPlaces: no two nodes have one address, locator or number, and no address lies in a locator.
func (c *checker) checkPlaces() {
	addresses, locators, numbers := firsts[netip.Addr]{}, firsts[netip.Prefix]{}, firsts[int]{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		key := nodeKey(n)
		if a := n.At().Addr; a.IsValid() {
			once(c, addresses, key+"."+n.Role().String(), a, "an address that the node alone has")
		}
		if n.Locator.IsValid() {
			once(c, locators, key+".locator", n.Locator, "a locator that the node alone has")
		}
		if n.Role() == NF {
			at := key + ".number"
			if n.Number == 0 {
				at = key
			}
			once(c, numbers, at, c.number(n), "a number that the node alone has")
		}
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		c.outsideLocators(nodeKey(n)+"."+n.Role().String(), n.At().Addr, locators)
	}
	for i := range c.Services {
		s := &c.Services[i]
		for j, a := range s.Addrs {
			key := c.element(serviceKey(s)+".vip", j)
			if first, taken := addresses[a]; taken {
				c.Failf(key, "%q is the address of %s (line %d); want one that no node has", a, first, c.Line(first))
			}
			c.outsideLocators(key, a, locators)
		}
	}
}

// element is the key of an element of a list, or of a value that stands alone.
func (c *checker) element(key string, i int) string {
	if at := fmt.Sprintf("%s[%d]", key, i); c.Given(at) {
		return at
	}
	return key
}

// outsideLocators: SIDs fill a locator.
func (c *checker) outsideLocators(key string, a netip.Addr, locators firsts[netip.Prefix]) {
	if !a.Is6() {
		return
	}
	p, err := a.Prefix(64)
	if first, taken := locators[p]; err == nil && taken {
		c.Failf(key, "%q lies in %s %s (line %d); want an address outside, for SIDs fill that prefix", a, first, p, c.Line(first))
	}
}

// checkServices: no two have one address and port, and their servers are servers of the farm.
func (c *checker) checkServices() {
	if len(c.Services) > 0 && !c.has(LB) && c.Right("nodes") {
		c.Failf("services", "have no LB; want a node with the key lb")
	}
	taken, all := map[topo.VIP]string{}, 0
	for i := range c.Services {
		s := &c.Services[i]
		c.checkPorts(s)
		if all += s.count(); all > topo.MaxServices {
			c.Failf(serviceKey(s)+".port", "makes %d addresses and ports of services together; want at most %d", all, topo.MaxServices)
			all = -1 << 30 // told once
		}
		c.checkMembers(s)
		if o := s.Accepts; o.Acceptance.Adapts() && o.Threshold > o.Workers && c.rights(serviceKey(s), "acceptance", "dynamic", "workers") { // as config has it of each server
			c.Failf(serviceKey(s)+".dynamic.initial", "%d is above workers, %d; want a whole number from 0 to %[2]d", o.Threshold, o.Workers)
		}
	}
	for _, b := range c.bounds() {
		if !b.vip.Addr.IsValid() {
			continue
		}
		key := serviceKey(b.of)
		if first, is := taken[b.vip]; is && first != key {
			c.Failf(key+".vip", "%s is served by %s already (line %d); want each address and port only once", b.vip, first, c.Line(first))
			break
		}
		taken[b.vip] = key
	}
}

func (c *checker) has(r Role) bool {
	return slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.Role() == r })
}

// checkPorts: the data plane knows single ports, so a range is as many services.
func (c *checker) checkPorts(s *Service) {
	for i, p := range s.Ports {
		key := c.element(serviceKey(s)+".port", i)
		if p.Any() {
			c.Failf(key, "%q is not served yet; want ports, or ranges of together at most %d addresses and ports", p, topo.MaxOffered)
		}
		for j, o := range s.Ports[:i] {
			if p.Protocol == o.Protocol && p.Low > 0 && o.Low > 0 && p.Low <= o.High && o.Low <= p.High && !p.Any() && !o.Any() {
				c.Failf(key, "%q overlaps %q, port %d of the list; want each port only once", p, o, j+1)
			}
		}
	}
	seen := firsts[netip.Addr]{}
	for i, a := range s.Addrs {
		if a.IsValid() {
			once(c, seen, c.element(serviceKey(s)+".vip", i), a, "each address only once")
		}
	}
}

func (c *checker) checkMembers(s *Service) {
	seen := firsts[string]{}
	for i := range s.Members {
		name := s.Members[i].Node
		at := fmt.Sprintf("%s.servers[%d]", serviceKey(s), i)
		if c.Given(at + ".name") {
			at += ".name"
		}
		if name == "" || !c.Right(at) {
			continue
		}
		once(c, seen, at, name, "each server only once")
		n := c.Node(name)
		switch {
		case n == nil && c.Right("nodes."+name):
			c.Failf(at, "%q is no node of this farm; %s", name, c.meant(name))
		case n == nil || n.Role() == NoRole:
		case n.Role() != Server:
			c.Failf(at, "%q is an %s (line %d); want a node with the key server", name, n.Role(), c.Line(nodeKey(n)))
		}
	}
	for _, n := range c.tooMany(s) {
		c.Failf(serviceKey(s)+".port", "makes more than %d addresses and ports at server %s; want at most so many over all its services", topo.MaxOffered, n)
	}
}

// tooMany are the servers that have more services than an agent, first with s.
func (c *checker) tooMany(s *Service) (names []string) {
	for i := range s.Members {
		n := c.Node(s.Members[i].Node)
		if n == nil || n.Role() != Server || len(n.Deliveries) == 0 || n.Deliveries[0] != topo.ByAgent {
			continue
		}
		before := 0
		for j := range c.Services {
			o := &c.Services[j]
			if o == s {
				break
			}
			if o.memberOf(n.Name) != nil {
				before += o.count()
			}
		}
		if before <= topo.MaxOffered && before+s.count() > topo.MaxOffered {
			names = append(names, n.Name)
		}
	}
	return names[:min(len(names), 1)]
}

// Meant names the node that another name is like, or some nodes.
func (f *Farm) Meant(name string) string {
	c := &checker{Farm: f}
	for _, n := range f.Nodes {
		c.names = append(c.names, n.Name)
	}
	return c.meant(name)
}

// meant names the node that another name is like, or some nodes.
func (c *checker) meant(name string) string {
	if best := schema.Nearest(name, c.names); best != "" {
		return "did you mean " + best + "?"
	}
	const some = 8
	if len(c.names) > some {
		return fmt.Sprintf("want one of its %d nodes, such as %s", len(c.names), schema.Either(c.names[:2]))
	}
	return "want " + schema.Either(c.names)
}
