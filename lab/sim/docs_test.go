package sim

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocs: docs/simulator.md has the registry's table of policies.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile("../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "<!-- policies -->\n")
	got, _, found := strings.Cut(rest, "<!-- /policies -->\n")
	var want strings.Builder
	want.WriteString("| policy | it sees | |\n|---|---|---|\n")
	for _, f := range sorted() {
		for _, s := range f.Names {
			if s.Means != "" {
				fmt.Fprintf(&want, "| `%s` | %v | %s |\n", s.Name, f.Sees, s.Means)
			}
		}
	}
	if !found || got != want.String() {
		t.Errorf("the table of docs/simulator.md should be:\n%s", want.String())
	}
}

// TestRegister: a name is taken once, and a family that cannot be made is refused.
func TestRegister(t *testing.T) {
	for _, f := range []Family{{Name: "rr", New: families["rr"].New}, {Name: "new"}, {New: families["rr"].New}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Register took %+v", f)
				}
			}()
			Register(f)
		}()
	}
}
