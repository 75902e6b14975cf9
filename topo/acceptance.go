package topo

import "strconv"

// Acceptance is how an agent decides on an offer that it could pass on.
type Acceptance uint8

// AcceptanceRow is all that Go code asks of an acceptance policy, but for the
// decision, which is policy.Acceptor's and bpf/agent/accept/'s.
type AcceptanceRow struct {
	Name    string
	Meaning string // one line, the schema's

	Threshold bool // the configuration spells it with its threshold, NAME:C
	Adapts    bool // the threshold moves, so that the key `dynamic` goes with it
}

var acceptances = [...]AcceptanceRow{
	Always: {
		Name:    "always",
		Meaning: "taken",
	},
	Static: { // SRLB Algorithm 1
		Name:      "static",
		Meaning:   "taken while fewer than C are busy",
		Threshold: true,
	},
	Dynamic: { // 6LB Algorithm 2
		Name:    "dynamic",
		Meaning: "static, with a threshold that adapts",
		Adapts:  true,
	},
}

// Acceptances lists the acceptance policies.
func Acceptances() []Acceptance { return listed[Acceptance](len(acceptances)) }

func (a Acceptance) Row() AcceptanceRow { return acceptances[a] }
func (a Acceptance) String() string     { return acceptances[a].Name }
func (a Acceptance) Meaning() string    { return acceptances[a].Meaning }
func (a Acceptance) Adapts() bool       { return acceptances[a].Adapts }

// Spell is an acceptance policy as the configuration spells it, "static:4".
func (a Acceptance) Spell(threshold int) string {
	return a.spell(strconv.Itoa(threshold))
}

// Pattern is the spelling with C for the threshold.
func (a Acceptance) Pattern() string { return a.spell("C") }

func (a Acceptance) spell(threshold string) string {
	if !a.Row().Threshold {
		return a.String()
	}
	return a.String() + ":" + threshold
}

// Policy is a way to spread load, spelt as everywhere in Proffer: "single",
// "hunt:static:4", "hunt:dynamic".
type Policy struct {
	Dispatch   Dispatch
	Acceptance Acceptance
	Threshold  int
}

func (p Policy) String() string {
	if !p.Dispatch.Signals() {
		return p.Dispatch.String()
	}
	return p.Dispatch.String() + ":" + p.Acceptance.Spell(p.Threshold)
}
