package farm

import (
	"slices"

	"proffer/schema"
)

// warn finds what is no mistake and yet seldom meant.
func warn(d *schema.Document, f *Farm) {
	c := &checker{Document: d, Farm: f}
	served := map[string]bool{}
	for i := range f.Services {
		s := &f.Services[i]
		for _, m := range s.Members {
			served[m.Node] = true
		}
		switch {
		case len(s.Members) == 0:
			c.Warnf(serviceKey(s)+".servers", "is empty, so the service's packets are dropped")
		case !slices.ContainsFunc(s.Members, func(m Member) bool { return f.weight(&m) > 0 }):
			c.Warnf(serviceKey(s)+".servers", "have weight 0, all of them, so the service takes no new flows")
		}
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if n.Role() == Server && !served[n.Name] {
			c.Warnf(nodeKey(n), "is a server of no service")
		}
	}
	c.warnEdges()
}

// weight is a member's: its own, or its node's.
func (f *Farm) weight(m *Member) int {
	if n := f.Node(m.Node); m.Weight < 0 && n != nil {
		return n.Weight
	}
	return m.Weight
}

func (c *checker) warnEdges() {
	if c.has(NF) && !slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.Role() == NF && n.Weight > 0 }) {
		c.Warnf("nodes", "have nfs of weight 0 alone, so no new flow is served")
	}
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Role() == Edge && n.Edge.Routed && c.has(NF) {
			c.Warnf(nodeKey(n)+".edge", "names no address, so no nf takes packets of this LB")
		}
	}
}
