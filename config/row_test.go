package config

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"proffer/topo"
)

// TestRowsExplained: docs/design/choosers.md explains every dispatch mode, docs/design/hunting.md every
// acceptance policy and load measure. Modes for comparison stand apart.
func TestRowsExplained(t *testing.T) {
	choosers, hunting := readFile(t, "../docs/design/choosers.md"), readFile(t, "../docs/design/hunting.md")
	use, comparison, _ := strings.Cut(choosers, "\n## For comparison\n")
	for _, d := range topo.Dispatches() {
		part := use
		if d.Comparison() {
			part = comparison
		}
		wantIn(t, "its part of docs/design/choosers.md", part, fmt.Sprintf("| `%s`", d))
	}
	for _, a := range topo.Acceptances() {
		wantIn(t, "docs/design/hunting.md", hunting, fmt.Sprintf("| `%s`", a.Pattern()))
	}
	for _, l := range topo.Loads() {
		wantIn(t, "docs/design/hunting.md", hunting, fmt.Sprintf("- **`%s`**", l))
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func wantIn(t *testing.T, name, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("%s has no %s", name, want)
	}
}
