package application

import (
	"slices"
	"strings"
	"testing"
)

// TestMissing: the error names the files, and a command that installs their packages, each once.
func TestMissing(t *testing.T) {
	p := Program{Name: "a", Needs: []Need{{"sh", "dash"}, {"/nonesuch/b*", "web"}, {"no-such-program", "web"}, {"/nonesuch/c", "archive"}}}
	want := "a: /nonesuch/b*, no-such-program, /nonesuch/c is missing: apt-get install --no-install-recommends archive web"
	if err := p.Missing(); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	p.Needs = p.Needs[:1]
	if err := p.Missing(); err != nil {
		t.Error("with a shell:", err)
	}
}

// TestNamed: programs are found by their names, which are all different.
func TestNamed(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range Names() {
		found, err := Named([]string{name})
		if err != nil || len(found) != 1 || found[0].Name != name || seen[name] {
			t.Errorf("%s: %v, %v", name, found, err)
		}
		seen[name] = true
	}
	if _, err := Named([]string{"redis", "siege"}); err == nil || !strings.Contains(err.Error(), `"siege"`) {
		t.Error("a program that there is not:", err)
	}
}

// TestServe: a kind that there is not, and arguments that it does not take, are named.
func TestServe(t *testing.T) {
	for _, args := range [][]string{{"gopher"}, {"h2", "[::1]:1"}, {"sessions"}} {
		if err := Serve(args[0], "", args[1:]); err == nil || !strings.Contains(err.Error(), args[0]) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestCures: each is a program that is asked for all that the other one is an exception of.
func TestCures(t *testing.T) {
	for _, p := range Programs() {
		if p.Cure == "" {
			continue
		}
		cures, err := Named([]string{p.Cure})
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		for kind := range p.Exceptions {
			if !slices.Contains(cures[0].Kinds(), kind) || cures[0].Exceptions[kind] != "" {
				t.Errorf("%s: %s does not cure %s", p.Name, p.Cure, kind)
			}
		}
	}
}
