package daemons

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestReloadFlag: --reload returns when the daemon has applied its file, and otherwise fails with the reason: a
// mistake in the file, a key that cannot change, no daemon.
func TestReloadFlag(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 1})
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:dynamic"))
	for role, n := range map[string]*testbed.Node{"lb": bed.LBs[0], "agent": bed.Servers[0]} {
		path := filepath.Join(bed.Dir, n.Name+".yaml")
		text, err := os.ReadFile(path)
		kit.Must(t, err)
		good := string(text)
		reload := func() (string, error) {
			out, err := exec.Command(kit.Proffer, role, "--config", path, "--reload").CombinedOutput()
			return string(out), err
		}
		if out, err := reload(); err != nil || kit.Status(t, farm, n).Reloads != 1 {
			t.Errorf("%s: %v: %s", role, err, out)
		}
		for bad, why := range map[string]string{
			good + "nonsense: 1\n":   "nonsense",
			renamed(t, good, n.Name): "node.name cannot change while the daemon runs",
		} {
			kit.Must(t, os.WriteFile(path, []byte(bad), 0o600))
			if out, err := reload(); err == nil || !strings.Contains(out, why) {
				t.Errorf("%s: %v, want %q: %s", role, err, why, out)
			}
		}
		if s := kit.Status(t, farm, n); s.Reloads != 1 {
			t.Errorf("%s: a file with a mistake was applied: %+v", role, s)
		}
		kit.Must(t, os.WriteFile(path, []byte(good), 0o600))
		kit.Must(t, farm.Daemon(n).Stop())
		if out, err := reload(); err == nil || !strings.Contains(out, "no daemon answers at ") {
			t.Errorf("%s: %v: %s", role, err, out)
		}
	}
}

// renamed is a configuration of a node of another name.
func renamed(t *testing.T, text, name string) string {
	t.Helper()
	other := regexp.MustCompile(`name: "?`+name+`"?`).ReplaceAllString(text, "name: other")
	if other == text {
		t.Fatalf("it does not name %s:\n%s", name, text)
	}
	return other
}
