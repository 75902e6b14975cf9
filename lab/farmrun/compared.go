package farmrun

import (
	"fmt"
	"strings"

	"proffer/policy"
	"proffer/topo"
)

// Compared is a policy of a comparison: the product's, or the product's with wrong weights.
type Compared struct {
	topo.Policy
	Inverted bool // fast servers have the weight of slow ones, and slow ones that of fast ones
}

// Inverted is the mark of wrong weights in the spelling of a policy.
const Inverted = ":inverted"

// ParseCompared reads a policy as policy.Parse does; with ":inverted" behind, of a policy that
// heeds configured weights, its weights are wrong.
func ParseCompared(s string) (c Compared, err error) {
	spelt, is := strings.CutSuffix(s, Inverted)
	if c.Policy, err = policy.Parse(spelt); err != nil {
		return c, err
	}
	if is && c.Dispatch.Seats() && c.Dispatch.Row().Weights != topo.Configured {
		return c, fmt.Errorf("policy %q: %s heeds no configured weights", s, spelt)
	}
	c.Inverted = is
	return c, nil
}

// String undoes ParseCompared.
func (c Compared) String() string {
	if c.Inverted {
		return c.Policy.String() + Inverted
	}
	return c.Policy.String()
}
