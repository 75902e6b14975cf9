// Package proffer holds the rule that the folders draw: imports point down only.
package proffer

import (
	"os/exec"
	"strings"
	"testing"
)

// layers lists every package from the bottom; one may import only those of the
// layers above its own line. ARCHITECTURE.md shows the same picture.
var layers = [][]string{
	{"ownfile", "schema", "topo"},
	{"foreign", "history", "lab/farm", "lab/farmrun/farmtest", "lab/queue", "lab/stats", "lab/trace", "policy", "schema/schematest", "weights"},
	{"balancer", "dataplane/objects", "lab/tables", "table", "wire"},
	{"config", "dataplane", "hostcheck", "lab/results", "lab/traffic/raw", "lab/traffic/responder", "loadpage", "plan", "proof/fsm", "proof/guest", "proof/machine", "proof/oracle"},
	{"agentless", "api", "dataplane/agent", "dataplane/edge", "dataplane/lb", "dataplane/nf", "dataplane/remains", "farm", "listeners", "lab/testbed", "lab/traffic", "loadsource", "nexthop", "report", "userspace"},
	{"control", "dataplane/bench", "lab/application", "proof/rig"},
	{"daemon", "proof/exhaustive", "proof/lines", "proof/races"},
	{"lab/edgesim", "lab/sim"},
	{"lab/sim/learned"},
	{"lab/sim/policies"},
	{"lab/sim/proof"},
	{"lab/figures"},
	{"lab/farmrun"},
	{"lab/apache", "lab/bench", "lab/demo", "lab/edge", "lab/loads", "lab/peers", "lab/storms", "lab/study"},
	{"lab/hlb"},
	{"lab/paper"},
	{"cmd/internal/cli", "cmd/internal/early"},
	{"cmd/internal/clitest"},
	{"e2e/kit"},
	{"cmd/proffer", "cmd/proffer-lab", "e2e/agentless", "e2e/agents", "e2e/daemons", "e2e/edge", "e2e/farm", "e2e/guests", "e2e/hostile", "e2e/lab", "e2e/load", "e2e/routes", "e2e/sizes", "e2e/wire"},
}

const module = "proffer/"

func TestImportsPointDown(t *testing.T) {
	layer := map[string]int{}
	for i, names := range layers {
		for _, name := range names {
			layer[name] = i
		}
	}
	seen := 0
	for _, line := range list(t, "{{.ImportPath}} {{join .Imports \" \"}}") {
		pkg, imports, _ := strings.Cut(strings.TrimPrefix(line, module), " ")
		own, ok := layer[pkg]
		if !ok && (pkg == "proffer" || strings.Contains(pkg, "/internal/")) {
			continue
		}
		if !ok {
			t.Errorf("package %s stands in no layer: add it here and in ARCHITECTURE.md", pkg)
			continue
		}
		for _, imported := range strings.Fields(imports) {
			name, ours := strings.CutPrefix(imported, module)
			if !ours || strings.HasPrefix(name, pkg+"/internal/") {
				continue
			}
			seen++
			if layer[name] >= own {
				t.Errorf("%s imports %s, which is not below it", pkg, name)
			}
		}
	}
	if seen == 0 {
		t.Fatal("no import of ours was found: the rule was not checked")
	}
}

// TestImportsOfEBPF keeps eBPF behind one door.
func TestImportsOfEBPF(t *testing.T) {
	found := false
	for _, line := range list(t, "{{.ImportPath}} {{join .Imports \" \"}}") {
		pkg, imports, _ := strings.Cut(strings.TrimPrefix(line, module), " ")
		if !strings.Contains(imports, "github.com/cilium/ebpf") {
			continue
		}
		found = true
		if folder, _, _ := strings.Cut(pkg, "/"); folder != "dataplane" && folder != "proof" {
			t.Errorf("%s imports cilium/ebpf; only dataplane and proof may", pkg)
		}
	}
	if !found {
		t.Fatal("no package imports cilium/ebpf: the rule was not checked")
	}
}

func list(t *testing.T, format string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", format, "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
