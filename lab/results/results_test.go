package results

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"proffer/lab/tables"
)

// sample has each kind of cell: a number with its digits, a number that JSON has not, a text, none.
func sample() *Result {
	return &Result{
		Command: "proffer-lab model --rho 0.5", Commit: "abc1234", Date: "2026-11-28", Machine: "2 × A <fast> CPU, Linux 6.18",
		Inputs: Inputs{Packages: []string{"./lab/queue"}, Hash: "ff"}, Missed: "one goal\nanother",
		Parts: []tables.Part{
			{Text: "times in \"ms\"\n  & more", Columns: []tables.Column{{Name: "policy"}, {Name: "mean", Unit: "ms"}, {Name: "±"}},
				Rows: [][]any{{"single", "1.50", "+2"}, {"hunt:static:4", "-10", ""}}},
			{Text: "the end"},
		},
	}
}

// TestWritten: a result that is written is the same when it is read, to the last digit, and written again
// it has the same bytes.
func TestWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results", "model.json")
	if err := sample().Write(path); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if row := `["single",1.50,"+2"]`; !strings.Contains(string(first), row) {
		t.Errorf("no row %s in\n%s", row, first)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Write(path); err != nil {
		t.Fatal(err)
	}
	if second, err := os.ReadFile(path); err != nil || string(first) != string(second) {
		t.Errorf("written again: %v\n%s", err, second)
	}
	want := sample()
	if got.Parts[0].Rows[0][1] = "1.50"; got.Missed != want.Missed || got.Machine != want.Machine || !reflect.DeepEqual(got.Inputs, want.Inputs) || !reflect.DeepEqual(got.Parts[0].Columns, want.Parts[0].Columns) {
		t.Errorf("read\n%+v\nwant\n%+v", got, want)
	}
}

// TestBadResults: a file that no command wrote is refused by its name.
func TestBadResults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.json")
	for _, text := range []string{
		"", "{}", `{"command": "c", "machine": "m"}`, `{"command": "c", "machine": "m", "date": "today", "parts": [{"text": "t"}]}`,
		`{"command": "c", "machine": "m", "colour": 1, "parts": [{"text": "t"}]}`,
		`{"command": "c", "machine": "m", "parts": [{"columns": [{"name": "a"}], "rows": [[1, 2]]}]}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestRender: what stands between the marks is the result, and all else of a page stays.
func TestRender(t *testing.T) {
	root := t.TempDir()
	if err := sample().Write(filepath.Join(root, "results/model.json")); err != nil {
		t.Fatal(err)
	}
	page := "# A\n\n<!-- results/model.json -->\nold\n<!-- end -->\n\nB\n\n<!-- results/model.json -->\n<!-- end -->\n"
	got, err := Render(root, page)
	if err != nil {
		t.Fatal(err)
	}
	table := "```\ntimes in \"ms\"\n  & more\n\npolicy         mean ms   ±\nsingle            1.50  +2\nhunt:static:4      -10\n\nthe end\n```\n\n**Missed**: one goal; another.\n\n<!-- end -->"
	want := "# A\n\n<!-- results/model.json -->\n`proffer-lab model --rho 0.5`, 2 × A <fast> CPU, Linux 6.18, 2026-11-28, commit abc1234:\n\n" + table +
		"\n\nB\n\n<!-- results/model.json -->\n`proffer-lab model --rho 0.5`, 2026-11-28, commit abc1234:\n\n" + table + "\n"
	if got != want {
		t.Errorf("rendered\n%s\nwant\n%s", got, want)
	}
	if again, err := Render(root, got); err != nil || again != got {
		t.Errorf("rendered again: %v\n%s", err, again)
	}
	if names := Named(got); len(names) != 2 {
		t.Errorf("named: %v", names)
	}
	if _, err := Render(root, strings.ReplaceAll(page, "model", "none")); err == nil {
		t.Error("a page shows a file that is not there")
	}
}

// TestWide: a table with long lines is Markdown's.
func TestWide(t *testing.T) {
	r := sample()
	r.Missed, r.Parts = "", []tables.Part{{Columns: []tables.Column{{Name: "a"}, {Name: "b", Unit: "s"}}, Rows: [][]any{{strings.Repeat("x", widest), "1"}}}}
	want := "`proffer-lab model --rho 0.5`, 2026-11-28, commit abc1234:\n\n|a|b s|\n|---|---|\n|" + strings.Repeat("x", widest) + "|1|\n\n"
	if got := r.render(false); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestOpen: what cannot be kept is refused before anything is measured.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		path, commit string
		clean        bool
		want         string
	}{
		{t.TempDir() + "/a.json", "HEAD", true, "not in a clone"},
		{"../../results/A B.json", "HEAD", true, "want a name of"},
		{"../../results/a.json", "", true, "of no commit"},
		{"../../results/a.json", "HEAD", false, "of no commit"},
		{"../../results/a.json", "0123456789abcdef0123456789abcdef01234567", true, "which is not in"},
	} {
		if _, err := Open(c.path, c.commit, c.clean); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := Open("../../results/a.json", "HEAD", true); err != nil {
		t.Error(err)
	}
}

// TestStale: in a copy of the tree a result becomes stale with a source of its packages, of a package that
// they import, an embedded eBPF object or go.mod, and with no other file.
func TestStale(t *testing.T) {
	root := copied(t)
	inputs := Inputs{Packages: []string{"./lab/bench"}}
	var err error
	if inputs.Hash, err = Hash(root, inputs.Packages); err != nil {
		t.Fatal(err)
	}
	r := &Result{Inputs: inputs}
	object, err := filepath.Glob(filepath.Join(root, "dataplane/objects/lb*_bpfel.o"))
	if err != nil || len(object) == 0 {
		t.Fatalf("no object: %v, %v", object, err)
	}
	embedded, err := filepath.Rel(root, object[0])
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"lab/bench/goals.go": "stale", "table/table.go": "stale", embedded: "stale", "go.mod": "stale",
		"lab/bench/goals_test.go": "", "lab/edgesim/engine.go": "", "docs/design/wire.md": "", "bpf/lb/lb.bpf.c": "",
	} {
		path := filepath.Join(root, file)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(before[:len(before):len(before)], "\n// changed\n"...), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := r.Stale(root, Hash); err != nil || got != want {
			t.Errorf("%s changed: %q, %v; want %q", file, got, err, want)
		}
		if err := os.WriteFile(path, before, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := r.Stale(root, Hash); err != nil || got != "" {
		t.Errorf("nothing changed: %q, %v", got, err)
	}
	figures, err := files(root, []string{"./lab/paper", "-./lab/bench", "-./lab/farmrun"})
	if err != nil || !slices.ContainsFunc(figures, under("lab/sim/")) || slices.ContainsFunc(figures, under("dataplane/")) {
		t.Errorf("figures that are computed are of %v, %v", figures, err)
	}
	if got, err := (&Result{}).Stale(root, Hash); err != nil || !strings.HasPrefix(got, "stale") {
		t.Errorf("a result without a hash: %q, %v", got, err)
	}
}

// under is true of a file in a folder.
func under(folder string) func(string) bool {
	return func(file string) bool { return strings.HasPrefix(file, folder) }
}

// copied is a copy of the tree.
func copied(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("git", "-C", "../..", "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for name := range strings.FieldsSeq(string(out)) {
		data, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			continue // deleted, and not committed
		}
		to := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
