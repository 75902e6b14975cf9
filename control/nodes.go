package control

import (
	"math"
	"time"

	"proffer/report"
	"proffer/topo"
	"proffer/weights"
)

// NodePoller asks the datapath nodes of an edge LB for the costs of their chains and for the loads of
// their cores. It owns no clock, no socket and no goroutine.
type NodePoller struct {
	cfg      *topo.EdgeLB
	nodes    []polledNode // in the order of the configuration
	asks     int          // of each node so far
	changed  bool         // a cost, since the last look
	reshaped bool         // a node has other cores or chains, since the last look
}

// polledNode is a node that is asked.
type polledNode struct {
	nonce  uint64 // of the last request
	open   bool   // which is not answered
	missed int    // requests since the last answer
	since  time.Duration
	lost   bool
	why    string                // an answer could not be used
	costs  map[int]weights.Curve // by service
	has    nodeHas
	last   busyAt
	loads  []float64 // of each core, between the answers to the last two requests before loaded
	loaded int       // the request that the loads are of; 0: none is known
}

// busyAt is an answer: how long each core worked until a time of the node's.
type busyAt struct {
	ask  int
	at   time.Duration
	busy []time.Duration
}

// NewNodePoller makes the poller of an LB's nodes. Nodes of the poller before it, which may be nil,
// keep their costs.
func NewNodePoller(cfg *topo.EdgeLB, before *NodePoller) *NodePoller {
	p := &NodePoller{cfg: cfg, nodes: make([]polledNode, len(cfg.Nodes)), changed: true}
	for i := range p.nodes {
		p.nodes[i].costs, p.nodes[i].has.lacks = map[int]weights.Curve{}, map[int]bool{}
		if j := before.find(&cfg.Nodes[i]); j >= 0 {
			was := &before.nodes[j]
			p.nodes[i].costs, p.nodes[i].has, p.nodes[i].since, p.nodes[i].lost = was.costs, was.has, was.since, was.lost
		}
	}
	return p
}

// find is the place of a node in the configuration, or -1.
func (p *NodePoller) find(n *topo.EdgeNode) int {
	if p != nil {
		for i, own := range p.cfg.Nodes {
			if own.Server == n.Server && own.Addr == n.Addr {
				return i
			}
		}
	}
	return -1
}

// Ask is the requests to all nodes, in the order of the configuration. A node is asked for the costs of
// one service after the other.
func (p *NodePoller) Ask(at time.Duration, random func() uint64) (requests []report.NodeMessage, changes []Change) {
	service := p.cfg.Services[p.asks%len(p.cfg.Services)].Number
	p.asks++
	for i := range p.nodes {
		n := &p.nodes[i]
		if n.since == 0 {
			n.since = at
		}
		if n.missed++; n.missed > missedMost && at-n.since >= lostAfter && !n.lost {
			n.lost = true
			n.loaded = 0
			changes = append(changes, Change{p.cfg.Nodes[i].Name, true, at - n.since, n.trouble()})
		}
		n.nonce, n.open = random(), true
		requests = append(requests, report.NodeMessage{Server: p.cfg.Nodes[i].Server, Service: service, Nonce: n.nonce})
	}
	return requests, changes
}

func (n *polledNode) trouble() string {
	if n.why != "" {
		return n.why
	}
	return "no answer"
}

// Answer takes the answer of the node at a place of the configuration. Only the last request's counts,
// once.
func (p *NodePoller) Answer(at time.Duration, node int, m *report.NodeMessage) (change *Change) {
	n := &p.nodes[node]
	if !n.open || m.Nonce != n.nonce {
		return nil
	}
	n.open = false
	if m.Cost != nil {
		if err := m.Cost.Check(); err != nil {
			n.why = "a service " + err.Error()
			return nil
		}
	}
	if n.lost {
		change = &Change{p.cfg.Nodes[node].Name, false, at - n.since, ""}
	}
	n.missed, n.since, n.lost, n.why = 0, at, false, ""
	if was, known := n.costs[m.Service]; m.Cost != nil && (!known || was != *m.Cost) {
		n.costs[m.Service] = *m.Cost
		p.changed = true
	}
	p.reshaped = n.has.take(m) || p.reshaped
	n.measure(p.asks, m)
	return change
}

// mostLoad is that of a core by two clocks that are read in turn; more cannot be.
const mostLoad = 2

// measure takes the loads between this answer and the answer before, which is that to the request before.
func (n *polledNode) measure(ask int, m *report.NodeMessage) {
	was, cores := n.last, len(m.Busy)
	n.last = busyAt{ask, m.At, m.Busy}
	elapsed := m.At - was.at
	if was.ask != ask-1 || len(was.busy) != cores || cores == 0 || elapsed <= 0 {
		return
	}
	loads := make([]float64, cores)
	for i := range loads {
		worked := time.Duration(uint32(m.Busy[i].Microseconds())-uint32(was.busy[i].Microseconds())) * time.Microsecond
		if loads[i] = float64(worked) / float64(elapsed); loads[i] > mostLoad {
			return
		}
	}
	n.loads, n.loaded = loads, ask
}

// Load is the load of a core of a node between the last two requests, or NaN. fresh: those of just now,
// and not earlier loads.
func (p *NodePoller) Load(node, core int, fresh bool) float64 {
	n := &p.nodes[node]
	if n.loaded == 0 || core >= len(n.loads) || fresh && n.loaded != p.asks {
		return math.NaN()
	}
	return n.loads[core]
}

// CostSource is the way that the cost of a service at a node was found.
type CostSource string

// The ways.
const (
	CostStated   CostSource = "stated"   // by the LB's file
	CostMeasured CostSource = "measured" // by the node, at its start
	CostAverage  CostSource = "average"  // of the nodes that measured it
	CostAssumed  CostSource = "assumed"  // no node has reported it yet
)

// assumedCost counts until a node reports another. While no cost is known, only the ratios of counts
// matter.
const assumedCost = time.Microsecond

// Cost is the cost of a service at a node of the configuration.
func (p *NodePoller) Cost(node int, s *topo.EdgeService) (weights.Curve, CostSource) {
	if s.Cost != 0 || p == nil {
		return weights.Fixed(float64(s.Cost.Nanoseconds())), CostStated
	}
	if c, known := p.nodes[node].costs[s.Number]; known {
		return c, CostMeasured
	}
	var known []weights.Curve
	for i := range p.nodes {
		if c, is := p.nodes[i].costs[s.Number]; is {
			known = append(known, c)
		}
	}
	if len(known) == 0 {
		return weights.Fixed(float64(assumedCost.Nanoseconds())), CostAssumed
	}
	return weights.Average(known...), CostAverage
}

// Changed reports whether a cost changed since the last call.
func (p *NodePoller) Changed() bool {
	changed := p != nil && p.changed
	if changed {
		p.changed = false
	}
	return changed
}
