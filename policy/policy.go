package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"proffer/topo"
)

// Parse reads a policy as it is spelt everywhere: a dispatch mode, and with a mode
// that takes signals also an acceptance: "hunt:static:4". Every policy has a single
// spelling, so Parse undoes topo.Policy.String and the reverse.
func Parse(s string) (topo.Policy, error) {
	for _, d := range topo.Dispatches() {
		if !d.Signals() && s == d.String() {
			return topo.Policy{Dispatch: d}, nil
		}
		rest, is := strings.CutPrefix(s, d.String()+":")
		if !d.Signals() || !is || !known(rest) {
			continue
		}
		acceptance, threshold, err := ParseAcceptance(rest)
		if err != nil {
			return topo.Policy{}, fmt.Errorf("policy %q: %w", s, err)
		}
		return topo.Policy{Dispatch: d, Acceptance: acceptance, Threshold: threshold}, nil
	}
	return topo.Policy{}, fmt.Errorf("unknown policy %q: want %s", s, either(Spellings()))
}

// Spellings lists every policy, with C for a threshold.
func Spellings() (all []string) {
	for _, d := range topo.Dispatches() {
		if !d.Signals() {
			all = append(all, d.String())
			continue
		}
		for _, a := range topo.Acceptances() {
			all = append(all, d.String()+":"+a.Pattern())
		}
	}
	return all
}

// ParseAcceptance reads how an agent decides, "static:4". The number is the
// threshold where the acceptance is spelt with it, and 0 otherwise.
func ParseAcceptance(s string) (topo.Acceptance, int, error) {
	var patterns []string
	for _, a := range topo.Acceptances() {
		if rest, is := spelt(a, s); is {
			threshold, err := parseThreshold(a, rest)
			if err != nil {
				return 0, 0, err
			}
			return a, threshold, nil
		}
		patterns = append(patterns, a.Pattern())
	}
	return 0, 0, fmt.Errorf("unknown acceptance %q: want %s", s, either(patterns))
}

func known(s string) bool {
	return slices.ContainsFunc(topo.Acceptances(), func(a topo.Acceptance) bool {
		_, is := spelt(a, s)
		return is
	})
}

// spelt returns the part of s behind the acceptance's name and colon. Returns false
// if s does not spell a.
func spelt(a topo.Acceptance, s string) (threshold string, is bool) {
	if a.Row().Threshold {
		return strings.CutPrefix(s, a.String()+":")
	}
	return "", s == a.String()
}

func parseThreshold(a topo.Acceptance, s string) (int, error) {
	if !a.Row().Threshold {
		return 0, nil
	}
	c, err := strconv.Atoi(s)
	// "+4" and "04" are malformed too: results are grouped by the spelling.
	if err != nil || c < 0 || c > topo.MaxThreshold || strconv.Itoa(c) != s {
		return 0, fmt.Errorf("threshold %q is not a whole number from 0 to %d", s, topo.MaxThreshold)
	}
	return c, nil
}

// either joins words as an error text does: "a, b or c".
func either(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
