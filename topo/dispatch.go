package topo

import (
	"fmt"
	"slices"
	"time"
)

// Dispatch names the chooser that gives the candidates of a service's new flows.
type Dispatch uint8

// DispatchRow is all that Go code asks of a dispatch mode. A mode is a row here, a
// chooser in bpf/lb/choose/, and in the docs.
type DispatchRow struct {
	Name    string // as the configuration spells it
	Meaning string // one line, the schema's and the docs'

	// Comparison: the mode is there to be compared with, as papers or other balancers have it;
	// help, schema and docs list it apart.
	Comparison bool
	// Offers: a new flow is offered to a list of candidates, so that `select`,
	// `choices` and `wire: insert` go with the mode.
	Offers bool
	// Signals: the agents of the servers signal, so that the LB remembers flows and
	// recovers them from `history`.
	Signals bool
	// Keeps: the client's own packets make the entries of flows, so that `recovery` goes
	// with the mode. A mode that neither keeps nor has signals sends each packet by hash,
	// so that `fragments: hash` goes with it.
	Keeps bool
	// Choice is how a server is chosen among all of the service, and Weights the source of their
	// weights. Counting is which flows of a server count for its score.
	Choice   Choice
	Weights  Weighting
	Counting Counting
	Ages     bool // of flows are sampled, beside their durations
	// Polls is how often the agents of the servers are asked for their loads; 0: never.
	Polls time.Duration
	// Published: speeds are learned by HLB's filter, which follows slowly.
	Published bool
}

var dispatches = [...]DispatchRow{
	Single: {
		Name:    "single",
		Meaning: "one server by hash, which keeps the flow; no agent needed",
		Keeps:   true,
	},
	Hunt: {
		Name:    "hunt",
		Meaning: "offered to a list of candidates, of which the first with room takes it",
		Offers:  true, Signals: true,
	},
	Stateless: {
		Name:    "stateless",
		Meaning: "each packet to one server by hash: a change of the pool resets flows",
	},
	Learned: {
		Name:    "learned",
		Meaning: "the server with the fewest flows for its learned speed; no agent needed",
		Keeps:   true, Choice: LeastOfAll, Weights: FromDurations, Counting: AllCounting,
	},
	LearnedLiteral: {
		Name:       "learned:literal",
		Meaning:    "as HLB's paper has it: a flow counts from its first data packet on",
		Comparison: true,
		Keeps:      true, Choice: LeastOfAll, Weights: FromDurations, Counting: LiteralCounting, Published: true,
	},
	LearnedAges: {
		Name:       "learned:ages",
		Meaning:    "learned from the ages of flows, as HLB's paper has it",
		Comparison: true,
		Keeps:      true, Choice: LeastOfAll, Weights: FromDurations, Counting: AllCounting, Ages: true, Published: true,
	},
	Learned2: {
		Name:       "learned2",
		Meaning:    "the better of two random servers by their flows and their learned speed",
		Comparison: true,
		Keeps:      true, Choice: BetterOfTwo, Weights: FromDurations, Counting: AllCounting,
	},
	Lsq: {
		Name:       "lsq",
		Meaning:    "the server with the fewest of this LB's flows",
		Comparison: true,
		Keeps:      true, Choice: LeastOfAll, Weights: Alike, Counting: AllCounting,
	},
	Lsq2: {
		Name:       "lsq2",
		Meaning:    "of two random servers the one with the fewest of this LB's flows",
		Comparison: true,
		Keeps:      true, Choice: BetterOfTwo, Weights: Alike, Counting: AllCounting,
	},
	Sed: {
		Name:       "sed",
		Meaning:    "the server with the fewest flows for its speed, which `weight` states",
		Comparison: true,
		Keeps:      true, Choice: LeastOfAll, Weights: Configured, Counting: AllCounting,
	},
	Sed2: {
		Name:       "sed2",
		Meaning:    "the better of two random servers by their flows and their stated speed",
		Comparison: true,
		Keeps:      true, Choice: BetterOfTwo, Weights: Configured, Counting: AllCounting,
	},
	Ecmp: {
		Name:       "ecmp",
		Meaning:    "a server by hash, all alike",
		Comparison: true,
		Keeps:      true, Choice: ByWeight, Weights: Alike, Counting: AllCounting,
	},
	Wcmp: {
		Name:       "wcmp",
		Meaning:    "a server by hash, in proportion to its `weight`",
		Comparison: true,
		Keeps:      true, Choice: ByWeight, Weights: Configured, Counting: AllCounting,
	},
	Rr: {
		Name:       "rr",
		Meaning:    "the servers in turn",
		Comparison: true,
		Keeps:      true, Choice: InTurn, Weights: Alike, Counting: AllCounting,
	},
	Awcmp: {
		Name:       "awcmp",
		Meaning:    "a server by hash, in proportion to its cores / (1 + requests in hand), by reports",
		Comparison: true,
		Keeps:      true, Choice: ByWeight, Weights: FromLoads, Counting: AllCounting, Polls: 500 * time.Millisecond,
	},
	WrrFeedback: {
		Name:       "wrr-feedback",
		Meaning:    "the servers in turn, less often the more workers are busy, by reports",
		Comparison: true,
		Keeps:      true, Choice: InTurn, Weights: FromWorkers, Counting: AllCounting, Polls: 200 * time.Millisecond,
	},
	Gsq2: {
		Name:       "gsq2",
		Meaning:    "of two random servers the one with the fewest requests in hand, by reports",
		Comparison: true,
		Keeps:      true, Choice: LesserQueue, Weights: Alike, Counting: AllCounting, Polls: 5 * time.Millisecond,
	},
}

// Dispatches lists the dispatch modes.
func Dispatches() []Dispatch { return listed[Dispatch](len(dispatches)) }

func (d Dispatch) Row() DispatchRow { return dispatches[d] }
func (d Dispatch) String() string   { return dispatches[d].Name }
func (d Dispatch) Meaning() string  { return dispatches[d].Meaning }

// Comparison: no operator needs the mode.
func (d Dispatch) Comparison() bool { return dispatches[d].Comparison }
func (d Dispatch) Offers() bool     { return dispatches[d].Offers }
func (d Dispatch) Signals() bool    { return dispatches[d].Signals }
func (d Dispatch) Keeps() bool      { return dispatches[d].Keeps }
func (d Dispatch) Learns() bool     { return dispatches[d].Weights == FromDurations }

// Polls: the LB asks the agents of the servers for their loads.
func (d Dispatch) Polls() bool { return dispatches[d].Polls > 0 }

// Seats: the service has a tally, where all of its servers have a seat, with the flows that count
// there.
func (d Dispatch) Seats() bool { return dispatches[d].Choice != ByTable }

// Remembers reports whether an LB remembers the servers of clients, where affinity is wanted: else a hash of the
// client's address has its server.
func (d Dispatch) Remembers() bool { return d.Seats() || dispatches[d].Signals }

func (d Dispatch) Tracks() bool { return d.Signals() || d.Keeps() }

// Recovers: an LB finds the server of a flow without an entry as `recovery` has it.
func (d Dispatch) Recovers() bool { return d.Keeps() }

// Counting is which flows of a server are its occupancy, which it is chosen by.
type Counting uint8

func (c Counting) String() string {
	return [...]string{
		AllCounting:     "all",     // established and embryonic flows
		LiteralCounting: "literal", // established ones
		FloodCounting:   "flood",   // established flows, as most SYNs are forged: the best of a few servers
	}[c]
}

// CountingIn is which flows count while there is a flood of SYNs, or none: not the embryonic flows, where
// the choice is by flows.
func (r DispatchRow) CountingIn(flood bool) Counting {
	if flood && r.Counting == AllCounting && r.Choice.Scores() {
		return FloodCounting
	}
	return r.Counting
}

// Signals: agents of the service's servers signal to the LB.
func (s *Service) Signals() bool {
	return s.Dispatch.Signals() || s.Dispatch.Recovers() && s.Recovery == AgentsRecovery
}

// Forgets: a TCP connection without an entry at an LB goes to a server that is seldom its own, as no agent
// is asked for it.
func (s *Service) Forgets() bool {
	row := s.Dispatch.Row()
	return s.VIP.Protocol == TCP && s.Dispatch.Recovers() && s.Recovery == HistoryRecovery && (!row.Choice.Hashed() || s.Dispatch.Polls())
}

// AllAsked: the service has servers, and each has an agent.
func (s *Service) AllAsked() bool {
	return len(s.Servers) > 0 && !slices.ContainsFunc(s.Servers, func(o Server) bool { return o.Delivery != ByAgent })
}

// Candidates is the length of the service's lists where there are servers enough.
func (s *Service) Candidates() int {
	if !s.Dispatch.Offers() {
		return 1
	}
	return max(s.Choices, 1)
}

// Past lists the pools that a flow of the service may be recovered from.
func (s *Service) Past() []Version {
	if !s.Dispatch.Tracks() {
		return nil
	}
	return s.History
}

// Mode describes the service's dispatch for `proffer status`.
func (s *Service) Mode() string {
	mode := s.Dispatch.String()
	if s.Dispatch.Offers() {
		mode += fmt.Sprintf(", choices %d", s.Choices)
	}
	servers := "servers"
	if len(s.Servers) == 1 {
		servers = "server"
	}
	mode += fmt.Sprintf(", %d %s", len(s.Servers), servers)
	if by := deliveriesOf(s.Servers); by != "" && !s.Dispatch.Offers() {
		mode += " (" + by + ")"
	}
	return mode
}

// listed is the first n values of an enum.
func listed[T ~uint8](n int) []T {
	values := make([]T, n)
	for i := range values {
		values[i] = T(i)
	}
	return values
}
