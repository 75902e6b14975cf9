package proffer

import (
	"os/exec"
	"strings"
	"testing"
)

// apart are the folders with packages that are no part of the product, which an
// operator trusts with CAP_BPF.
var apart = []string{"lab", "proof", "e2e", "dataplane/bench", "cmd/proffer-lab", "cmd/internal/clitest", "schema/schematest"}

func isProduct(pkg string) bool {
	for _, dir := range apart {
		if pkg == dir || strings.HasPrefix(pkg, dir+"/") {
			return false
		}
	}
	return true
}

// TestProductImportsNoLaboratory: nor the judges that tests ask.
func TestProductImportsNoLaboratory(t *testing.T) {
	product := 0
	for _, line := range list(t, "{{.ImportPath}} {{join .Imports \" \"}}") {
		pkg, imports, _ := strings.Cut(strings.TrimPrefix(line, module), " ")
		if !isProduct(pkg) {
			continue
		}
		product++
		for _, imported := range strings.Fields(imports) {
			if name, ours := strings.CutPrefix(imported, module); ours && !isProduct(name) {
				t.Errorf("%s imports %s, which is no part of the product", pkg, name)
			}
		}
	}
	if product < 10 {
		t.Fatalf("%d packages of the product were found: the rule was not checked", product)
	}
}

// TestProfferLinksNoLaboratory: no traffic generator, forger, simulator or plot
// is in the binary that runs with CAP_BPF; the laboratory's binary has them.
func TestProfferLinksNoLaboratory(t *testing.T) {
	for _, family := range []string{"proffer/lab/", "proffer/proof/", "gonum.org/v1/gonum/", "gonum.org/v1/plot/", "github.com/gopacket/", "google.golang.org/grpc/"} {
		for _, pkg := range linked(t, "./cmd/proffer") {
			if strings.HasPrefix(pkg+"/", family) {
				t.Errorf("proffer links %s", pkg)
			}
		}
	}
	if !strings.Contains(strings.Join(linked(t, "./cmd/proffer-lab"), "\n"), "proffer/lab/traffic") {
		t.Error("proffer-lab links no traffic generator: the rule was not checked")
	}
}

// linked lists the packages that a program is made of.
func linked(t *testing.T, program string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", program).Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v", program, err)
	}
	return strings.Fields(string(out))
}
