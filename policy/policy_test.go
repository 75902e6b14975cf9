package policy

import (
	"slices"
	"testing"

	"proffer/topo"
)

func TestParse(t *testing.T) {
	for _, want := range []topo.Policy{
		{Dispatch: topo.Single},
		{Dispatch: topo.Hunt, Acceptance: topo.Always},
		{Dispatch: topo.Hunt, Acceptance: topo.Static, Threshold: 0},
		{Dispatch: topo.Hunt, Acceptance: topo.Static, Threshold: 4},
		{Dispatch: topo.Hunt, Acceptance: topo.Static, Threshold: topo.MaxThreshold},
		{Dispatch: topo.Hunt, Acceptance: topo.Dynamic},
	} {
		got, err := Parse(want.String())
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v", want, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	choices := ": want " + either(Spellings())
	const threshold = " is not a whole number from 0 to 65535"
	for spelling, want := range map[string]string{
		"":                  `unknown policy ""` + choices,
		"random":            `unknown policy "random"` + choices,
		"Single":            `unknown policy "Single"` + choices,
		"single:":           `unknown policy "single:"` + choices,
		"hunt":              `unknown policy "hunt"` + choices,
		"hunt:":             `unknown policy "hunt:"` + choices,
		"hunt:static":       `unknown policy "hunt:static"` + choices,
		"hunt:dynamic:3":    `unknown policy "hunt:dynamic:3"` + choices,
		"static:4":          `unknown policy "static:4"` + choices,
		"hunt:static:":      `policy "hunt:static:": threshold ""` + threshold,
		"hunt:static:-1":    `policy "hunt:static:-1": threshold "-1"` + threshold,
		"hunt:static:65536": `policy "hunt:static:65536": threshold "65536"` + threshold,
		"hunt:static:04":    `policy "hunt:static:04": threshold "04"` + threshold,
		"hunt:static:4 ":    `policy "hunt:static:4 ": threshold "4 "` + threshold,
		"hunt:static:four":  `policy "hunt:static:four": threshold "four"` + threshold,
	} {
		if _, err := Parse(spelling); err == nil || err.Error() != want {
			t.Errorf("Parse(%q)\n got %v\nwant %s", spelling, err, want)
		}
	}
}

func TestParseAcceptance(t *testing.T) {
	var patterns []string
	for _, a := range topo.Acceptances() {
		patterns = append(patterns, a.Pattern())
	}
	choices := ": want " + either(patterns)
	for _, c := range []struct {
		spelling   string
		acceptance topo.Acceptance
		threshold  int
		problem    string
	}{
		{"always", topo.Always, 0, ""},
		{"static:0", topo.Static, 0, ""},
		{"static:65535", topo.Static, 65535, ""},
		{"dynamic", topo.Dynamic, 0, ""},
		{"static", 0, 0, `unknown acceptance "static"` + choices},
		{"never", 0, 0, `unknown acceptance "never"` + choices},
		{"static:65536", 0, 0, `threshold "65536" is not a whole number from 0 to 65535`},
	} {
		acceptance, threshold, err := ParseAcceptance(c.spelling)
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		if acceptance != c.acceptance || threshold != c.threshold || problem != c.problem {
			t.Errorf("ParseAcceptance(%q) = %v, %d, %v", c.spelling, acceptance, threshold, err)
		}
	}
}

// TestSpellings: errors list the policies as the configuration spells them.
func TestSpellings(t *testing.T) {
	want := []string{"single", "hunt:always", "hunt:static:C", "hunt:dynamic"}
	for _, spelling := range want {
		if !slices.Contains(Spellings(), spelling) {
			t.Errorf("%q is not among %q", spelling, Spellings())
		}
	}
	if got := either(want[:3]); got != "single, hunt:always or hunt:static:C" {
		t.Errorf("either: %s", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"single", "hunt:always", "hunt:static:4", "hunt:dynamic", "hunt:static:+4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := Parse(s); err == nil && p.String() != s {
			t.Errorf("%q and %q are one policy", s, p)
		}
	})
}
