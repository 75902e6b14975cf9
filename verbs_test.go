package proffer

import (
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// verb is a verb of a command, with its flags, and whether it has verbs below it.
type verb struct {
	flags map[string]bool
	group bool
}

// verbsOf asks a command for its verbs, as it explains them: "proffer", "proffer lb" and so on.
func verbsOf(t *testing.T, program string, path ...string) map[string]verb {
	t.Helper()
	out, err := exec.Command(program, append(path, "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v --help: %v\n%s", program, path, err, out)
	}
	help := string(out)
	own := verb{flags: map[string]bool{}}
	for _, f := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)`).FindAllStringSubmatch(help, -1) {
		own.flags[f[1]] = true
	}
	all := map[string]verb{}
	_, below, _ := strings.Cut(help, "Available Commands:\n")
	below, _, _ = strings.Cut(below, "\n\n")
	for _, line := range regexp.MustCompile(`(?m)^  ([a-z-]+)`).FindAllStringSubmatch(below, -1) {
		if line[1] != "help" {
			own.group = true
			maps.Copy(all, verbsOf(t, program, append(slices.Clone(path), line[1])...))
		}
	}
	all[strings.Join(append([]string{filepath.Base(program)}, path...), " ")] = own
	return all
}

// spans are the pieces of a document that a reader may type: code between backticks, and lines of blocks.
func spans(text string) (all []string) {
	for i, part := range strings.Split(text, "```") {
		if i%2 == 1 {
			all = append(all, strings.Split(strings.ReplaceAll(part, "\\\n", " "), "\n")...)
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(part, -1) {
			all = append(all, m[1])
		}
	}
	return all
}

// TestVerbsAreDocumented: documents name verbs and flags that exist; and each verb, and each flag of
// an operator's verb, is named in a document.
func TestVerbsAreDocumented(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir, "./cmd/proffer", "./cmd/proffer-lab").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	verbs := verbsOf(t, dir+"/proffer")
	maps.Copy(verbs, verbsOf(t, dir+"/proffer-lab"))
	flags := map[string]bool{} // of any verb
	for _, v := range verbs {
		maps.Copy(flags, v.flags)
	}
	named := map[string]bool{}
	for _, file := range tracked(t, "*.md") {
		for _, span := range spans(read(t, file)) {
			if alone := regexp.MustCompile(`^--([a-z][a-z0-9-]*)`).FindStringSubmatch(span); alone != nil {
				if named[alone[0]] = true; !flags[alone[1]] {
					t.Errorf("%s names `%s`, which is no flag of a verb", file, alone[0])
				}
			}
			for _, command := range regexp.MustCompile(`(?:^|[ /])(proffer(?:-lab)?) ([a-z][^|;&#]*)`).FindAllStringSubmatch(span, -1) {
				wantCommand(t, file, verbs, command[1], command[2], named)
			}
		}
	}
	for path, v := range verbs {
		if !v.group && !named[path] {
			t.Errorf("no document names `%s`", path)
		}
		for flag := range v.flags {
			if strings.HasPrefix(path, "proffer ") && flag != "help" && !named[path+" --"+flag] && !named["--"+flag] {
				t.Errorf("no document names `%s --%s`", path, flag)
			}
		}
	}
	if len(named) < 20 {
		t.Fatalf("documents name %d verbs and flags: they were not read", len(named))
	}
}

// wantCommand checks a command line of a document, and marks what it names.
func wantCommand(t *testing.T, file string, verbs map[string]verb, path, line string, named map[string]bool) {
	t.Helper()
	words := strings.Fields(line)
	if len(words) > 1 && words[0] == "help" {
		words = words[1:]
	}
	for verbs[path].group && len(words) > 0 && regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(words[0]) {
		if path, words = path+" "+words[0], words[1:]; verbs[path].flags == nil {
			t.Errorf("%s names `%s`, which is no verb", file, path)
			return
		}
		named[path] = true
	}
	for _, word := range words {
		flag, isFlag := strings.CutPrefix(strings.Trim(word, "[](),."), "--")
		flag, _, _ = strings.Cut(flag, "=")
		if !isFlag || flag == "" || flag == "help" {
			continue
		}
		named[path+" --"+flag] = true
		if !verbs[path].flags[flag] {
			t.Errorf("%s names `%s --%s`, which is no flag of it", file, path, flag)
		}
	}
}
