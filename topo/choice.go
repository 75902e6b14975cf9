package topo

// Choice is how a new flow's server is chosen.
type Choice uint8

const (
	ByTable     Choice = iota // by the service's table alone
	LeastOfAll                // the least (flows + 1) / weight of all servers
	BetterOfTwo               // of two random servers
	ByWeight                  // by the flow's digest, in proportion to weights
	InTurn                    // one after the other, in proportion to weights
	LesserQueue               // of two random servers that with fewer requests, as their agents report
)

// Hashed: the server of a flow follows from its digest and the servers' weights.
func (c Choice) Hashed() bool { return c == ByTable || c == ByWeight }

// Scores: a server is chosen by its flows.
func (c Choice) Scores() bool { return c == LeastOfAll || c == BetterOfTwo }

// Queues: a server is chosen by the requests that its agent reports.
func (c Choice) Queues() bool { return c == LesserQueue }

// Shares are those of new flows that servers of these weights are dealt; of two random servers any is
// as likely as another. Without shares none is dealt.
func (c Choice) Shares(weights []float64) []float64 {
	switch c {
	case ByWeight, InTurn:
		return weights
	case BetterOfTwo, LesserQueue:
		alike := make([]float64, len(weights))
		for i, w := range weights {
			if w > 0 {
				alike[i] = 1
			}
		}
		return alike
	}
	return nil
}

// Weighting is the source of the weights of servers.
type Weighting uint8

const (
	Unweighted    Weighting = iota // the mode chooses by the table
	Alike                          // all servers are
	Configured                     // `weight`
	FromDurations                  // learned from the durations of flows
	FromLoads                      // by the loads that agents report: cores / (1 + requests in hand)
	FromWorkers                    // by the busy part of workers that agents report
)

// String is why a server has the weight that it has.
func (w Weighting) String() string {
	return [...]string{
		Unweighted:    "by the table",
		Alike:         "all servers are alike",
		Configured:    "as configured",
		FromDurations: "by the durations of flows",
		FromLoads:     "by reported loads",
		FromWorkers:   "by reported workers",
	}[w]
}

// Weights are those of a service's servers before any is learned: `weight`, or alike; 0: no new flows.
func (s *Service) Weights() []float64 {
	w := make([]float64, len(s.Servers))
	for i, server := range s.Servers {
		w[i] = float64(server.Weight)
		if s.Dispatch.Row().Weights != Configured {
			w[i] = min(w[i], 1)
		}
	}
	return w
}
