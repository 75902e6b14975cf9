package topo

import "fmt"

// Dispatch names the chooser that gives the candidates of a service's new flows.
type Dispatch uint8

// DispatchRow is all that Go code asks of a dispatch mode. A mode is a row here, a
// chooser in bpf/lb/choose/, its name in config/lb.schema.json and in the docs.
type DispatchRow struct {
	Name    string // as the configuration spells it
	Meaning string // one line, the schema's and the docs'

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
		Meaning: "each packet to one server by hash: a change of the pool resets the flows that then hash to another server",
	},
}

// Dispatches lists the dispatch modes.
func Dispatches() []Dispatch { return listed[Dispatch](len(dispatches)) }

func (d Dispatch) Row() DispatchRow { return dispatches[d] }
func (d Dispatch) String() string   { return dispatches[d].Name }
func (d Dispatch) Offers() bool     { return dispatches[d].Offers }
func (d Dispatch) Signals() bool    { return dispatches[d].Signals }
func (d Dispatch) Keeps() bool      { return dispatches[d].Keeps }
func (d Dispatch) Tracks() bool     { return d.Signals() || d.Keeps() }

// Signals: agents of the service's servers signal to the LB.
func (s *Service) Signals() bool {
	return s.Dispatch.Signals() || s.Dispatch.Keeps() && s.Recovery == AgentsRecovery
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
	if !s.Dispatch.Offers() {
		return fmt.Sprintf("%s, %d servers", s.Dispatch, len(s.Servers))
	}
	return fmt.Sprintf("%s, %d of %d servers", s.Dispatch, min(s.Choices, len(s.Servers)), len(s.Servers))
}

// listed is the first n values of an enum.
func listed[T ~uint8](n int) []T {
	values := make([]T, n)
	for i := range values {
		values[i] = T(i)
	}
	return values
}
