package proffer

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"proffer/lab/results"
)

var update = flag.Bool("update", false, "render the pages from the results again")

// TestResultsAreShown: each table of results in the documents is what its file in results/ holds, and
// each file is in a page. -update renders the pages, as `make update` does. Nothing fails because a result
// is stale: `proffer-lab results` lists that.
func TestResultsAreShown(t *testing.T) {
	files, err := filepath.Glob("results/*")
	if err != nil {
		t.Fatal(err)
	}
	unused := map[string]bool{}
	for _, file := range files {
		unused[file] = true
	}
	for _, page := range tracked(t, "README.md", "docs/*.md") {
		text := read(t, page)
		for _, name := range results.Named(text) {
			delete(unused, name)
		}
		want, err := results.Render(".", text)
		switch {
		case err != nil:
			t.Errorf("%s: %v", page, err)
		case want == text:
		case *update:
			if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("%s differs from the results that it shows; run `go test . -run TestResultsAreShown -update`", page)
		}
	}
	for file := range maps.Keys(unused) {
		t.Errorf("%s is in no page: show it between <!-- %[1]s --> and <!-- end -->", file)
	}
}

// TestResultOfCommand: in a clone, a command of a build of its commit keeps what it prints; the list calls
// the result stale once a package of it differs, and a build of another source keeps nothing.
func TestResultOfCommand(t *testing.T) {
	dir := t.TempDir()
	copyTree(t, dir)
	run := func(want string, fails bool, command ...string) string {
		t.Helper()
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if (err != nil) != fails || !strings.Contains(string(out), want) {
			t.Fatalf("%q: %v; want %q in\n%s", command, err, want, out)
		}
		return string(out)
	}
	run("", false, "git", "init", "-q")
	run("", false, "git", "add", "-A")
	run("", false, "git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-q", "-m", "test")
	makeBuild(t, dir)
	model := []string{"build/proffer-lab", "model", "--rho", "0.5", "--policy", "single,hunt:static:4", "--result", "results/of-test.json"}
	printed := run("written: results/of-test.json", false, model...)
	r, err := results.Read(filepath.Join(dir, "results/of-test.json"))
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(run("", false, "git", "rev-parse", "--short", "HEAD"))
	if want := "proffer-lab model --policy single,hunt:static:4 --rho 0.5"; r.Command != want || r.Commit != commit || r.Date == "" || r.Inputs.Hash == "" {
		t.Errorf("%+v; want the command %q and commit %s", r, want, commit)
	}
	for _, cell := range r.Parts[0].Rows[1] {
		if number := fmt.Sprint(cell); !strings.Contains(printed, number) {
			t.Errorf("%s is kept, and was not printed:\n%s", number, printed)
		}
	}
	state := func() string {
		list := run("of-test", false, "build/proffer-lab", "results")
		for line := range strings.SplitSeq(list, "\n") {
			if strings.HasPrefix(line, "of-test ") {
				return strings.Join(strings.Fields(line)[3:5], " ")
			}
		}
		t.Fatalf("no line of the result in\n%s", list)
		return ""
	}
	change := func(file string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(read(t, file)+"\n// changed\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := state(); got != "as today" {
		t.Errorf("the result is %q, want as today", got)
	}
	change("lab/edgesim/engine.go")
	if got := state(); got != "as today" {
		t.Errorf("with another package changed it is %q, want as today", got)
	}
	change("lab/queue/model.go")
	if got := state(); got != "stale proffer-lab" {
		t.Errorf("with its package changed it is %q, want stale", got)
	}
	run("lab/queue/model.go differs since", true, model...)
}
