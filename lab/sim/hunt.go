package sim

import (
	"proffer/policy"
	"proffer/topo"
)

// hunter is every policy that offers a request to a list of servers, hunt (6LB)
// and guided (POLICIES.md, "Ours").
type hunter struct {
	*engine
	guided    bool
	choices   int
	acceptors []policy.Acceptor // hunt: one a server
	gauges    []gauge           // guided: one a server
	tokens    []*tokens         // guided: one an LB
}

// The parameters of 6LB Algorithm 2.
const (
	dynamicWindow  = 50
	dynamicEpsilon = 0.1
	dynamicFirst   = 1
)

func newHunter(e *engine) *hunter {
	p := e.policy
	h := &hunter{engine: e, guided: p.Base == "guided", choices: p.Choices}
	for i, s := range e.farm.Servers {
		a := policy.Acceptor{Acceptance: p.Acceptance, Threshold: uint32(p.Threshold)}
		if p.Acceptance == topo.Dynamic {
			a.Threshold, a.Window, a.Epsilon = dynamicFirst, dynamicWindow, dynamicEpsilon
			a.Workers = uint32(e.servers[i].room)
			if s.Discipline == Sharing {
				a.Workers = uint32(s.Workers)
			}
		}
		h.acceptors = append(h.acceptors, a)
	}
	if h.guided {
		h.gauges = make([]gauge, len(e.servers))
		for range e.farm.LBs {
			h.tokens = append(h.tokens, newTokens(e.farm.Servers))
		}
	}
	return h
}

// list fills in the request's candidates.
func (h *hunter) list(r *request) {
	n := h.choices
	r.offered = uint8(n)
	candidates(r.list[:n], h.flowHash(r), len(h.servers))
	if !h.guided {
		return
	}
	r.least = noMetric
	first := h.tokens[r.lb].take()
	if first == nobody {
		return
	}
	at := n - 1 // the token's server may be in the flow's own list: then it is not there twice
	for i, s := range r.list[:n] {
		if s == first {
			at = i
		}
	}
	copy(r.list[1:at+1], r.list[:at])
	r.list[0] = first
}

// offer asks the server that has the offer. False: it is passed on, or, after
// the last, returned.
func (h *hunter) offer(r *request) bool {
	busy := h.servers[r.server].taken
	last := r.visit == r.offered-1
	if !h.guided {
		return last || h.acceptors[r.server].Offer(uint32(busy))
	}
	cores := int32(h.farm.Servers[r.server].Cores)
	if busy < cores {
		return true
	}
	if m := h.metric(r.server); m < r.least {
		r.least, r.leastOf = m, r.visit
	}
	return last && r.leastOf == r.visit
}

// learn is the server measuring a request that it has completed.
func (h *hunter) learn(r *request) {
	if h.guided {
		h.gauges[r.server].add(r.service / h.farm.Servers[r.server].speed())
	}
}

// tell writes the server's report into a signal of the flow.
func (h *hunter) tell(r *request) {
	if h.guided {
		r.report = h.metric(r.server)
		r.idle = h.servers[r.server].taken < int32(h.farm.Servers[r.server].Cores)
	}
}

// heard is the signal's way past the LB.
func (h *hunter) heard(i int32) {
	if !h.guided {
		return
	}
	r := &h.requests.all[i]
	if r.idle {
		h.tokens[r.lb].add(r.server, r.report)
	} else {
		h.tokens[r.lb].drop(r.server)
	}
}
