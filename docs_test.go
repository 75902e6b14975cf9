package proffer

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCountersAreDocumented holds docs/operate/counters.md to the programs' enums: each counter has a row,
// and no row is of a counter that is gone.
func TestCountersAreDocumented(t *testing.T) {
	doc := read(t, "docs/operate/counters.md")
	sections := map[string]string{}
	for section := range strings.SplitSeq(doc, "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		sections[title] = text
	}
	for _, c := range []struct{ source, prefix, section string }{
		{"bpf/lb/counters.h", "LB", sections["LB"]},
		{"bpf/agent/counters.h", "AGENT", sections["Agent"]},
		{"bpf/edge/counters.h", "EDGE", sections["Edge LB"]},
		{"bpf/edge/nf_counters.h", "NODE", sections["nf"]},
	} {
		names := regexp.MustCompile(`(?m)^\t`+c.prefix+`_([A-Z0-9_]+),`).FindAllStringSubmatch(read(t, c.source), -1)
		if len(names) == 0 {
			t.Fatalf("no counter found in %s", c.source)
		}
		for _, n := range names {
			name := strings.ToLower(n[1])
			rows := regexp.MustCompile("(?m)^\\|[^|]*`"+name+"`[^|]*\\|").FindAllString(c.section, -1)
			if len(rows) != 1 {
				t.Errorf("docs/operate/counters.md explains %s of %s %d times, want once", name, c.source, len(rows))
			}
		}
		for _, row := range regexp.MustCompile(`(?m)^\|([^|]*)\|`).FindAllStringSubmatch(c.section, -1) {
			for _, cell := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(row[1], -1) {
				if !slices.ContainsFunc(names, func(n []string) bool { return strings.ToLower(n[1]) == cell[1] }) {
					t.Errorf("docs/operate/counters.md explains %s, which %s has not", cell[1], c.source)
				}
			}
		}
	}
}

// TestLinks follows every relative link of the documents, to its heading.
func TestLinks(t *testing.T) {
	files, err := filepath.Glob("docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	found := 0
	for _, file := range append(files, "docs/failures.md", "README.md", "ARCHITECTURE.md") {
		for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
			found++
			to := file
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(file), m[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", file, m[1], err)
			} else if m[2] != "" && !anchors(read(t, to))[m[2]] {
				t.Errorf("%s links to %s%s: %s has no such heading", file, m[1], m[2], to)
			}
		}
	}
	if found == 0 {
		t.Fatal("no link was found: nothing was checked")
	}
}

// anchors are the headings of a document, as links name them.
func anchors(doc string) map[string]bool {
	named := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(doc, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		named["#"+strings.ReplaceAll(name, " ", "-")] = true
	}
	return named
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestFailuresAreTested: every test that docs/failures.md names exists, and no case has two rows.
func TestFailuresAreTested(t *testing.T) {
	var sources strings.Builder
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, "_test.go") {
			sources.WriteString(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`(Test[A-Za-z0-9]+)").FindAllStringSubmatch(read(t, "docs/failures.md"), -1)
	if len(names) == 0 {
		t.Fatal("docs/failures.md names no test")
	}
	for _, n := range names {
		if !strings.Contains(sources.String(), "func "+n[1]+"(") {
			t.Errorf("docs/failures.md names %s, which does not exist", n[1])
		}
	}
	cases := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\|([^|]+)\|.+\|.+\|$`).FindAllStringSubmatch(read(t, "docs/failures.md"), -1) {
		if cases[row[1]] && !strings.HasPrefix(row[1], "-") {
			t.Errorf("docs/failures.md has%stwice", row[1])
		}
		cases[row[1]] = true
	}
}
