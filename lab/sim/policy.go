package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"proffer/policy"
	"proffer/topo"
)

// Policy is a way to spread load. The fields after Name refine it; ParsePolicy
// fills them in.
type Policy struct {
	Name string // as ParsePolicy reads it

	Base       string // Name without refinements: "learned", "hunt", …
	TwoChoices bool   // look at two random servers only (…2)
	Choices    int    // hunt, guided: candidates in a list
	Acceptance topo.Acceptance
	Threshold  int // hunt static: c

	Every     time.Duration // learned, awcmp, wrr-feedback: between updates of the weights; 0: the papers'
	Completed bool          // learned: durations of completed flows, not ages at data packets
	Reservoir int           // learned: samples kept of each server
	FixedR    float64       // learned: R stays at this (HLB-FIX); 0: it adapts
}

func (p Policy) String() string { return p.Name }

// every is the time between updates in ns, if the papers say usual.
func (p Policy) every(usual int64) int64 {
	if p.Every > 0 {
		return int64(p.Every)
	}
	return usual
}

// Policies lists what ParsePolicy takes, one spelling of each kind.
func Policies() []string {
	return []string{
		"single", "rr", "wrr-feedback", "ecmp", "wcmp", "awcmp",
		"lsq", "lsq2", "gsq2", "sed", "sed2",
		"learned", "learned2", "learned:ages", "learned:ages:fixed",
		"hunt:static:4", "hunt:dynamic", "hunt:always", "guided", "guided:8",
		"jsq", "jsq2", "jiq", "oracle", "oracle2", "oraclef", "oraclef2",
	}
}

// ParsePolicy reads a policy:
//
//	single rr wrr-feedback ecmp wcmp awcmp jiq
//	lsq sed jsq oracle oraclef, each also with a 2 for two random choices; gsq2 is jsq2
//	learned[2]        durations of completed flows, reservoir 128 (the HLB paper's text)
//	      :completed  the same, said out loud
//	      :ages       ages at data packets, reservoir 32 (its Algorithm 1 and the authors' code)
//	      :K          a reservoir of K samples
//	      :fixed      R = 0.5 throughout (HLB-FIX)
//	hunt:static:C hunt:dynamic hunt:always   two candidates (6LB)
//	guided[:C]        C candidates, 4 unless said (POLICIES.md)
func ParsePolicy(name string) (Policy, error) {
	p := Policy{Name: name}
	base, options, _ := strings.Cut(name, ":")
	p.Base = base
	if two, ok := strings.CutSuffix(base, "2"); ok && base != "gsq2" {
		p.Base, p.TwoChoices = two, true
	}
	if p.Base == "gsq2" {
		p.Base, p.TwoChoices = "jsq", true
	}
	switch {
	case p.TwoChoices && !slices.Contains(pairable, p.Base):
		return Policy{}, unknown(name)
	case p.Base == "hunt":
		return p.hunting(options)
	case p.Base == "guided":
		return p.guided(options)
	case p.Base == "learned":
		return p.learning(options)
	case options != "" || strings.HasSuffix(name, ":") || !slices.Contains(plain, p.Base):
		return Policy{}, unknown(name)
	}
	return p, nil
}

var (
	pairable = []string{"lsq", "sed", "jsq", "learned", "oracle", "oraclef"}
	plain    = []string{"single", "rr", "wrr-feedback", "ecmp", "wcmp", "awcmp", "jiq", "lsq", "sed", "jsq", "oracle", "oraclef"}
)

func unknown(name string) error {
	return fmt.Errorf("unknown policy %q: want one of %s", name, strings.Join(Policies(), " "))
}

func (p Policy) hunting(options string) (Policy, error) {
	acceptance, threshold, err := policy.ParseAcceptance(options)
	if err != nil {
		return Policy{}, fmt.Errorf("policy %q: %w", p.Name, err)
	}
	p.Acceptance, p.Threshold, p.Choices = acceptance, threshold, 2
	return p, nil
}

func (p Policy) guided(options string) (Policy, error) {
	p.Choices = 4
	if options == "" && p.Name == p.Base {
		return p, nil
	}
	n, err := strconv.Atoi(options)
	if err != nil || n < 2 || n > maxChoices || strconv.Itoa(n) != options {
		return Policy{}, fmt.Errorf("policy %q: %q candidates: want 2 to %d", p.Name, options, maxChoices)
	}
	p.Choices = n
	return p, nil
}

func (p Policy) learning(options string) (Policy, error) {
	p.Completed, p.Reservoir = true, 128
	if options == "" && !strings.Contains(p.Name, ":") {
		return p, nil
	}
	sized := false
	for _, o := range strings.Split(options, ":") {
		k, err := strconv.Atoi(o)
		switch {
		case o == "completed":
		case o == "ages":
			p.Completed = false
		case o == "fixed":
			p.FixedR = 0.5
		case err == nil && k > 0 && k <= 1<<20:
			p.Reservoir, sized = k, true
		default:
			return Policy{}, fmt.Errorf("policy %q: %q: want ages, completed, fixed or the size of a reservoir", p.Name, o)
		}
	}
	if !p.Completed && !sized {
		p.Reservoir = 32
	}
	return p, nil
}
