package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proffer/cmd/internal/cli"
)

// fileOf is a file with a text.
func fileOf(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const twoNodes = "farm: one\nnodes:\n  lb1: {lb: 10.0.0.1, locator: 5f00:0:1:1::/64}\n  s1: {server: 10.0.0.2, delivery: l2}\nservices:\n"

// TestCheck: every mistake has its line, a warning is no mistake, and the exit code tells them apart.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		services string
		code     int
		want     []string // lines begin so, after the file
	}{
		{"  web: {vip: 192.0.2.10, port: 80, dispatch: learned, servers: [s1]}\n", cli.OK, []string{": farm one, version 0, can be used: 1 lb, 1 server, 1 services"}},
		{"  web: {vip: 192.0.2.10, port: 80, dispatch: learned, servers: [{name: s1, weight: 0}]}\n", cli.OK, []string{
			":6:64: warning: services.web.servers have weight 0", ": farm one"}},
		{"  web: {vip: 192.0.2.10, port: 0, dispatch: hunt, servers: [s1, s2], chioces: 3}\n", cli.Failed, []string{
			":6:32: services.web.port: \"0\" is not a port", ":6:61: services.web.servers[0]: \"l2\" has no agent", ":6:65: services.web.servers[1].name: \"s2\" is no node of this farm; did you mean s1?", ":6:70: services.web.chioces: unknown key; did you mean choices?"}},
	} {
		file := fileOf(t, "farm.yaml", twoNodes+c.services)
		code, out, stderr := call(t, "check", file)
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if code != c.code || len(lines) != len(c.want) {
			t.Errorf("exit %d, want %d:\n%s%s", code, c.code, out, stderr)
			continue
		}
		for i, want := range c.want {
			if !strings.HasPrefix(lines[i], file+want) {
				t.Errorf("got  %s\nwant …%s", lines[i], want)
			}
		}
		var answer struct {
			OK                 bool
			Mistakes, Warnings []said
		}
		if code, out, _ := call(t, "check", "--json", file); code != c.code || json.Unmarshal([]byte(out), &answer) != nil || answer.OK != (c.code == cli.OK) || len(answer.Mistakes)+len(answer.Warnings) != len(lines)-map[bool]int{true: 1}[answer.OK] {
			t.Errorf("--json: exit %d, %s", code, out)
		}
	}
	wantLine(t, []string{"check", "/nowhere/farm.yaml"}, cli.Failed, "read the farm: open /nowhere/farm.yaml: no such file")
	wantLine(t, []string{"check"}, cli.Usage, "FILE is missing: a farm's file, or - for stdin")
}
