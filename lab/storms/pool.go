package storms

import (
	"errors"
	"math/rand/v2"
	"slices"

	"proffer/lab/testbed"
	"proffer/topo"
)

// pool is a service with servers that are replaced, with a reload of all LBs.
type pool struct {
	version int
	history []topo.Version // newest first
	horizon bool           // earlier pools stay in the configuration
	in      []*testbed.Node
	fresh   []*testbed.Node
	rng     *rand.Rand
}

// newPool has the first so many of the nodes in the pool; the others wait.
func newPool(nodes []*testbed.Node, size int, horizon bool, seed uint64) *pool {
	return &pool{
		version: 1,
		horizon: horizon,
		in:      slices.Clone(nodes[:size]),
		fresh:   nodes[size:],
		rng:     rand.New(rand.NewPCG(seed, 1)),
	}
}

// configure puts the pool into the configuration of an LB.
func (p *pool) configure(lb *topo.LB) {
	s := &lb.Services[0]
	s.Servers, s.Version, s.History = serversOf(p.in), p.version, p.history
}

// serversOf are nodes as a configuration has them: in order of their locators.
func serversOf(nodes []*testbed.Node) []topo.Server {
	var servers []topo.Server
	for _, n := range nodes {
		servers = append(servers, topo.Server{Name: n.Name, Locator: n.Locator, Weight: 1})
	}
	slices.SortFunc(servers, func(a, b topo.Server) int { return a.Locator.Addr().Compare(b.Locator.Addr()) })
	return servers
}

// replace takes a random server out of the pool and a fresh one in.
func (p *pool) replace() (gone *testbed.Node, err error) {
	if len(p.fresh) == 0 {
		return nil, errors.New("replace a server: there is no fresh one left")
	}
	if p.horizon {
		was := topo.Version{Version: p.version, Servers: serversOf(p.in)}
		p.history = append([]topo.Version{was}, p.history...)
	}
	p.version++
	i := p.rng.IntN(len(p.in))
	gone, p.in[i] = p.in[i], p.fresh[0]
	p.fresh = p.fresh[1:]
	return gone, nil
}
