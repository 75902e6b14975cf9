package farm

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"proffer/config"
	"proffer/schema"
	"proffer/topo"
)

// checkDerived has the checks of package config look at what the nodes get, but for parts with a mistake of their own.
func (c *checker) checkDerived() {
	sound := c.sound()
	none, local := &Secrets{Report: new(topo.Key)}, Local{Link: "eth0", CPUs: 1}
	told := false
	for i := range sound.Nodes {
		n := &sound.Nodes[i]
		switch n.Role() {
		case LB:
			if !told { // all LBs have the same services
				told = true
				c.derived(sound, n, func(d *schema.Document) { config.CheckLB(d, sound.unsorted(n, none, local)) })
			}
		case Server:
			if len(n.Deliveries) > 0 && n.Deliveries[0] == topo.ByAgent {
				c.derived(sound, n, func(d *schema.Document) { config.CheckAgent(d, sound.Agent(n, none, local)) })
			}
		case Edge:
			c.derived(sound, n, func(d *schema.Document) {
				lb := sound.EdgeLB(n, none, local)
				lb.Nodes = slices.DeleteFunc(lb.Nodes, func(o topo.EdgeNode) bool { return !o.Addr.IsValid() })
				for j := range lb.Nodes {
					if lb.Nodes[j].Link == local.Link {
						lb.Nodes[j].Link = "the link to nfs" // known on the host
					}
				}
				config.CheckEdge(d, lb)
			})
		case NF:
			c.derived(sound, n, func(d *schema.Document) { config.CheckDatapath(d, sound.Datapath(n, none, local)) })
		}
	}
	c.checkVia()
}

// unsorted is the LB's configuration with servers in the order of the file, by which mistakes are found.
func (f *Farm) unsorted(n *Node, s *Secrets, local Local) *topo.LB {
	lb := &topo.LB{Node: f.topoNode(n, s, local), Flows: n.flows(1)}
	for _, b := range f.bounds() {
		lb.Services = append(lb.Services, f.service(&b))
	}
	return lb
}

// sound is the farm without the nodes, services and chains that lack what they are known by, and without members
// that are none.
func (c *checker) sound() *Farm {
	f := *c.Farm
	f.Domain = slices.DeleteFunc(slices.Clone(f.Domain), func(p netip.Prefix) bool { return !p.IsValid() })
	f.Nodes = slices.DeleteFunc(slices.Clone(f.Nodes), func(n Node) bool { return !c.known(&n) })
	f.Chains = slices.Clone(f.Chains)
	for i := range f.Chains {
		ch := &f.Chains[i]
		ch.Prefixes = slices.DeleteFunc(slices.Clone(ch.Prefixes), func(p netip.Prefix) bool { return !p.IsValid() })
	}
	f.Chains = slices.DeleteFunc(f.Chains, func(ch Chain) bool { return len(ch.Prefixes) == 0 })
	f.Services = slices.Clone(f.Services)
	for i := range f.Services {
		s := &f.Services[i]
		s.Addrs = slices.DeleteFunc(slices.Clone(s.Addrs), func(a netip.Addr) bool { return !a.IsValid() })
		s.Via = slices.DeleteFunc(slices.Clone(s.Via), func(a netip.Addr) bool { return !a.IsValid() })
		var members []Member
		for j, m := range s.Members {
			if n := f.Node(m.Node); n != nil && n.Role() == Server && c.Right(fmt.Sprintf("%s.servers[%d]", serviceKey(s), j)) {
				members = append(members, m)
			}
		}
		s.Members = members
		c.stand(&f, s, i)
	}
	return &f
}

// stand gives a service whose addresses or ports are no use some in their place, so that the rest of it is checked.
func (c *checker) stand(f *Farm, s *Service, i int) {
	if len(s.Addrs) == 0 {
		s.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 255})}
		if !slices.ContainsFunc(s.Members, func(m Member) bool { return !f.Node(m.Node).Deliveries[0].Takes(netip.IPv6Loopback()) }) {
			s.Addrs[0] = netip.MustParseAddr("2001:db8:ffff::1")
		}
	}
	if n := s.count(); n == 0 || n > topo.MaxServices {
		port := uint16(1 + i)
		s.Ports = []Port{{Protocol: topo.TCP, Low: port, High: port}}
	}
}

// known reports whether a node's place and way to it have no mistake.
func (c *checker) known(n *Node) bool {
	switch key := nodeKey(n); n.Role() {
	case LB:
		return n.Locator.IsValid() && c.rights(key, "lb", "locator")
	case Server:
		d := n.Deliveries
		return len(d) > 0 && n.Locator.IsValid() == d[0].SRv6() && (d[0].SRv6() || n.Server.Addr.IsValid()) && c.rights(key, "server", "locator", "delivery", "vni", "mac")
	case Edge:
		return c.rights(key, "edge")
	case NF: // its functions are checked without a place, too
		return true
	}
	return false
}

// rights reports whether there is no mistake at some keys of a mapping.
func (c *checker) rights(mapping string, keys ...string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool { return !c.Right(mapping + "." + key) })
}

// on lists the keys of a service, a node or a chain that a mistake at its key of today may come from, where these have
// mistakes of their own. A mistake at any other key comes from all.
var on = map[string][]string{
	"wire": {"wire", "dispatch", "vip"}, "fragments": {"fragments", "dispatch", "vip"}, "recovery": {"recovery", "dispatch", "port"},
	"servers":  {"dispatch", "recovery", "via"},
	"dispatch": {"dispatch"}, "affinity": {"affinity", "dispatch"}, "affinity_time": {"affinity"}, "allow": {"allow"}, "via": {"via"}, "history": {"pool"}, "dynamic": {"dynamic", "workers", "acceptance"},
	"load": {"load", "port", "owner"}, "load_from": {"load", "load_from"}, "load_of": {"load", "load_of"},
	"public": {"public"}, "balancer": {"balancer"}, "prefixes": {"prefixes"}, "cost": {"cost"},
}

// kept reports whether a derived mistake is no consequence of another.
func (c *checker) kept(key string) bool {
	for i := range c.Services {
		if rest, is := strings.CutPrefix(key, serviceKey(&c.Services[i])+"."); is {
			if strings.HasPrefix(rest, "history") && !c.Given(serviceKey(&c.Services[i])+".pool") && !c.Right("version") {
				return false
			}
			return c.causeless(serviceKey(&c.Services[i]), rest)
		}
	}
	for i := range c.Chains {
		if rest, is := strings.CutPrefix(key, chainKey(&c.Chains[i])+"."); is {
			return c.causeless(chainKey(&c.Chains[i]), rest)
		}
	}
	for i := range c.Nodes {
		if rest, is := strings.CutPrefix(key, nodeKey(&c.Nodes[i])+"."); is {
			return c.causeless(nodeKey(&c.Nodes[i]), rest)
		}
	}
	return c.OK()
}

var ofMember = regexp.MustCompile(`^(servers\[\d+\])\.(.+)$`)
var inFunctions = regexp.MustCompile(`^functions\[\d+\]`)

func (c *checker) causeless(noun, rest string) bool {
	if fn := inFunctions.FindString(rest); fn != "" {
		return c.Right(noun + "." + fn)
	}
	if member := ofMember.FindStringSubmatch(rest); member != nil {
		return c.causeless(noun, member[2]) && c.causeless(noun+"."+member[1], member[2])
	}
	part := rest[:len(rest)-len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz_"))]
	if keys, listed := on[part]; listed {
		return c.rights(noun, keys...) && c.Right(noun+"."+rest)
	}
	return c.Right(noun)
}

var ofService = regexp.MustCompile(`^services\[(\d+)\]\.?([a-z_]*)(?:\[(\d+)\])?(.*)$`)
var ofChain = regexp.MustCompile(`^(?:services|chains)\[(\d+)\](.*)$`)

// derived runs a check of a node's configuration, whose keys it traces to those of the farm's file.
func (c *checker) derived(f *Farm, n *Node, check func(*schema.Document)) {
	bounds := f.bounds()
	if n.Role() == Server {
		bounds = slices.DeleteFunc(bounds, func(b bound) bool { return b.of.memberOf(n.Name) == nil })
	}
	trace := func(key string) string {
		part, rest, _ := strings.Cut(key, ".")
		switch {
		case part == "node" && rest == "locator":
			return nodeKey(n) + ".locator"
		case part == "node":
			return rest
		case n.Role() == Edge || n.Role() == NF:
			return c.traceEdge(f, n, key)
		}
		m := ofService.FindStringSubmatch(key)
		if m == nil {
			return key
		}
		i, _ := strconv.Atoi(m[1])
		b := bounds[i]
		at := serviceKey(b.of)
		switch {
		case m[2] == "name" || m[2] == "":
			return at
		case m[2] == "version":
			return at + ".pool"
		case m[2] == "servers" && m[3] != "":
			j, _ := strconv.Atoi(m[3])
			return c.memberKey(b.of, b.of.Members[j].Node)
		case n.Role() == Server && c.Given(c.memberKey(b.of, n.Name)+"."+m[2]):
			return c.memberKey(b.of, n.Name) + "." + m[2] + m[4]
		}
		index := ""
		if m[3] != "" {
			index = "[" + m[3] + "]"
		}
		return at + "." + m[2] + index + m[4]
	}
	c.Derived(trace, c.kept, check)
}

// memberKey is the key path of a server of a service.
func (c *checker) memberKey(s *Service, node string) string {
	whole := c.Services[slices.IndexFunc(c.Services, func(o Service) bool { return o.Name == s.Name })]
	i := slices.IndexFunc(whole.Members, func(m Member) bool { return m.Node == node })
	return fmt.Sprintf("%s.servers[%d]", serviceKey(s), i)
}

// traceEdge: services of an edge LB and chains of an nf are chains, in their order; but an nf has those alone that
// have functions.
func (c *checker) traceEdge(f *Farm, n *Node, key string) string {
	chains := slices.Clone(f.Chains)
	if n.Role() == NF {
		chains = slices.DeleteFunc(chains, func(ch Chain) bool { return len(ch.Functions) == 0 })
	}
	m := ofChain.FindStringSubmatch(key)
	if m == nil {
		return nodeKey(n) + "." + strings.Replace(key, "clients", "prefixes", map[bool]int{true: 1, false: 0}[n.Role() == NF])
	}
	i, _ := strconv.Atoi(m[1])
	return chainKey(&chains[i]) + m[2]
}

// checkVia: the SIDs on the way are those of other nodes than LBs.
func (c *checker) checkVia() {
	for i := range c.Services {
		s := &c.Services[i]
		for j, sid := range s.Via {
			for k := range c.Nodes {
				if n := &c.Nodes[k]; n.Role() == LB && n.Locator.Contains(sid) {
					c.Failf(fmt.Sprintf("%s.via[%d]", serviceKey(s), j), "%q lies in the locator %s of LB %s; want the SID of a node on the way", sid, n.Locator, n.Name)
				}
			}
		}
	}
}
