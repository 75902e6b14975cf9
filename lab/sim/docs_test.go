package sim

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of docs/design/simulator.md")

// TestDocs: docs/design/simulator.md has the registry's table of policies; -update writes it.
func TestDocs(t *testing.T) {
	const file, begin, end = "../../docs/design/simulator.md", "<!-- policies -->\n", "<!-- /policies -->\n"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(data), begin)
	got, tail, found := strings.Cut(rest, end)
	want := policyTable()
	switch {
	case !found:
		t.Errorf("%s has no place for the table of policies", file)
	case got == want:
	case !*update:
		t.Errorf("run `go test ./lab/sim -run TestDocs -update`: the table of %s should be:\n%s", file, want)
	default:
		if err := os.WriteFile(file, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func policyTable() string {
	var table strings.Builder
	table.WriteString("| policy | it sees | |\n|---|---|---|\n")
	for _, f := range sorted() {
		for _, s := range f.Names {
			if s.Means != "" {
				fmt.Fprintf(&table, "| `%s` | %v | %s |\n", s.Name, f.Sees, s.Means)
			}
		}
	}
	return table.String()
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
