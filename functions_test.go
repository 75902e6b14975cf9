package proffer

import (
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFunctionPlaces holds the list of places that a network function needs (docs/operate/functions.md) to
// the files that name an example.
func TestFunctionPlaces(t *testing.T) {
	const example = "rewriter"
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(read(t, "docs/operate/functions.md"), -1) {
		listed[m[1]] = true
	}
	out, err := exec.Command("git", "grep", "--name-only", "--ignore-case", example).Output()
	if err != nil {
		t.Fatalf("search the files: %v", err)
	}
	others := regexp.MustCompile(`_test\.go$|/testdata/|_bpfel\.|^docs/operate/functions\.md$`)
	for _, file := range strings.Fields(string(out)) {
		if others.MatchString(file) {
			continue
		}
		if !listed[file] {
			t.Errorf("%s names the function %s, and docs/operate/functions.md has no row for it", file, example)
		}
		delete(listed, file)
	}
	for _, file := range slices.Sorted(maps.Keys(listed)) {
		t.Errorf("docs/operate/functions.md has a row for %s, which does not name the function %s", file, example)
	}
}
