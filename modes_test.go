package proffer

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestRowsAreAsked: no product package compares a dispatch mode, an acceptance policy
// or a load measure with a name. It asks the value's row (topo), so that another
// mode is another row. The laboratory and the judges choose modes by name.
func TestRowsAreAsked(t *testing.T) {
	compared := regexp.MustCompile(`([!=]= *|case .*)topo\.(Single|Stateless|Hunt|Always|Static|Dynamic|Busy|Sockets|Page)\b`)
	checked := 0
	for _, file := range tracked(t, "*.go") {
		if strings.HasSuffix(file, "_test.go") || !product(file) {
			continue
		}
		checked++
		for number, line := range strings.Split(read(t, file), "\n") {
			if compared.MatchString(line) {
				t.Errorf("%s:%d compares a mode: %s", file, number+1, strings.TrimSpace(line))
			}
		}
	}
	if checked < 40 {
		t.Fatalf("only %d files of the product were read", checked)
	}
}

// product reports whether a file belongs to the product.
func product(file string) bool {
	for _, folder := range []string{"lab/", "proof/", "e2e/", "cmd/proffer-lab/", "cmd/internal/"} {
		if strings.HasPrefix(file, folder) {
			return false
		}
	}
	return true
}

// tracked lists the files of the repository that match patterns.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"ls-files", "--"}, patterns...)...).Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var files []string
	for _, file := range strings.Fields(string(out)) {
		if _, err := os.Stat(file); err == nil {
			files = append(files, file)
		}
	}
	return files
}
