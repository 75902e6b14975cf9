package study

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPolicyOfAnotherModule builds the example, a module of its own, in another
// folder and without a network, and compares its policy with ours.
func TestPolicyOfAnotherModule(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, from := range map[string]string{"three.go": "lab/sim/example", "go.mod": "lab/sim/example", "go.sum": ""} {
		data, err := os.ReadFile(filepath.Join(root, from, name))
		if err != nil {
			t.Fatal(err)
		}
		data = []byte(strings.ReplaceAll(string(data), "=> ../../..", "=> "+root))
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "run", ".", "--farm", "B:hom", "--policies", "three,jsq2,jsq", "--rho", "0.9", "--seeds", "2", "--requests", "20000", "--json")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var rows []Row
	if err := json.Unmarshal(out, &rows); err != nil || len(rows) != 3 {
		t.Fatalf("%v, %d rows:\n%s", err, len(rows), out)
	}
	if three, two, all := rows[0], rows[1], rows[2]; three.Policy != "three" || !(all.P90 < three.P90 && three.P90 < two.P90) {
		t.Errorf("p90 of three %v ms, of two %v, of all %v (seeds 1 and 2)", three.P90, two.P90, all.P90)
	}
}
