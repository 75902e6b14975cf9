package policy

import (
	"fmt"
	"strconv"
	"strings"

	"proffer/topo"
)

// MaxThreshold is the largest busy count that a threshold can name: the data
// plane keeps thresholds in 16 bits.
const MaxThreshold = 65535

// Parse reads a policy as it is spelt everywhere: "single", "hunt:always",
// "hunt:static:C" with C from 0 to MaxThreshold, "hunt:dynamic". Every policy
// has one spelling, so Parse undoes topo.Policy.String and the reverse.
func Parse(s string) (topo.Policy, error) {
	if s == topo.Single.String() {
		return topo.Policy{Dispatch: topo.Single}, nil
	}
	rest, hunt := strings.CutPrefix(s, topo.Hunt.String()+":")
	if !hunt || !knownAcceptance(rest) {
		return topo.Policy{}, fmt.Errorf("unknown policy %q: want single, hunt:always, hunt:static:C or hunt:dynamic", s)
	}
	acceptance, threshold, err := ParseAcceptance(rest)
	if err != nil {
		return topo.Policy{}, fmt.Errorf("policy %q: %w", s, err)
	}
	return topo.Policy{Dispatch: topo.Hunt, Acceptance: acceptance, Threshold: threshold}, nil
}

// ParseAcceptance reads how an agent decides: "always", "static:C", "dynamic".
// The number is C for static and 0 otherwise.
func ParseAcceptance(s string) (topo.Acceptance, int, error) {
	switch s {
	case topo.Always.String():
		return topo.Always, 0, nil
	case topo.Dynamic.String():
		return topo.Dynamic, 0, nil
	}
	if !knownAcceptance(s) {
		return 0, 0, fmt.Errorf("unknown acceptance %q: want always, static:C or dynamic", s)
	}
	threshold, err := parseThreshold(strings.TrimPrefix(s, staticPrefix))
	if err != nil {
		return 0, 0, err
	}
	return topo.Static, threshold, nil
}

const staticPrefix = "static:"

func knownAcceptance(s string) bool {
	return s == topo.Always.String() || s == topo.Dynamic.String() || strings.HasPrefix(s, staticPrefix)
}

func parseThreshold(s string) (int, error) {
	c, err := strconv.Atoi(s)
	// "+4" and "04" are refused too: results are grouped by the spelling.
	if err != nil || c < 0 || c > MaxThreshold || strconv.Itoa(c) != s {
		return 0, fmt.Errorf("threshold %q is not a whole number from 0 to %d", s, MaxThreshold)
	}
	return c, nil
}
