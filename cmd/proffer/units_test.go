package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"proffer/topo"
)

// fourCapabilities are all that a daemon needs.
const fourCapabilities = "CAP_BPF CAP_PERFMON CAP_NET_ADMIN CAP_SYS_RESOURCE"

// settingsOf reads a unit's settings; each stands once.
func settingsOf(t *testing.T, text string) map[string]string {
	t.Helper()
	settings := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		if _, twice := settings[key]; twice {
			t.Errorf("%s stands twice", key)
		}
		settings[key] = value
	}
	return settings
}

// TestUnits: a unit for each daemon, which systemd takes as it is, with a verb and flags that
// this program has, the four capabilities and no other.
func TestUnits(t *testing.T) {
	for _, verb := range []string{"lb", "agent", "edge", "nf"} {
		text, err := os.ReadFile("../../dist/proffer-" + verb + ".service")
		if err != nil {
			t.Fatal(err)
		}
		s := settingsOf(t, string(text))
		for key, want := range map[string]string{
			"Type":                     "notify",
			"ExecStart":                "/usr/local/bin/proffer " + verb + " --config /etc/proffer/" + verb + ".yaml",
			"ExecReload":               "/usr/local/bin/proffer " + verb + " --config /etc/proffer/" + verb + ".yaml --reload",
			"KillMode":                 "mixed",
			"Restart":                  "always",
			"CapabilityBoundingSet":    fourCapabilities,
			"NoNewPrivileges":          "yes",
			"RuntimeDirectoryPreserve": "yes",
		} {
			if s[key] != want {
				t.Errorf("%s: %s=%s, want %s", verb, key, s[key], want)
			}
		}
		cmd, rest, err := newRoot().Find(strings.Fields(s["ExecStart"])[1:])
		if err != nil || cmd.Name() != verb || cmd.ParseFlags(rest) != nil {
			t.Errorf("%s: ExecStart=%s: %v", verb, s["ExecStart"], err)
		}
		verifyUnit(t, verb, strings.ReplaceAll(string(text), "/usr/local/bin/proffer", "/bin/true"))
		wantSafe(t, "../../dist/proffer-"+verb+".service")
	}
}

// wantSafe wants a unit that systemd calls safe: an exposure of 3 or less.
func wantSafe(t *testing.T, unit string) {
	t.Helper()
	out, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--threshold=30", unit).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security %s: %v\n%s", unit, err, out)
	}
}

// TestCapabilitiesByNeed: the agent's unit has a line for each capability that a setting needs,
// left out as it ships, which systemd takes; the documents name it.
func TestCapabilitiesByNeed(t *testing.T) {
	unit, err := os.ReadFile("../../dist/proffer-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../docs/operate/farm.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"CAP_SYS_PTRACE", "CAP_SYS_ADMIN", "CAP_CHOWN"} {
		line := "CapabilityBoundingSet=" + c
		if strings.Count(string(unit), "\n# "+line+" ") != 1 || !strings.Contains(string(guide), c) || !strings.Contains(topo.Needs(c), line+" ") {
			t.Errorf("%s: not in the unit, the guide or the advice", c)
		}
		verifyUnit(t, "agent", strings.ReplaceAll(string(unit), "/usr/local/bin/proffer", "/bin/true")+"\n[Service]\n"+line+"\n")
	}
}

// TestNodeByNeed: the node's unit has the lines that functions in user space and reports need, left out
// as it ships, which systemd takes; the documents name them.
func TestNodeByNeed(t *testing.T) {
	unit, err := os.ReadFile("../../dist/proffer-nf.service")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../docs/operate/edge.md")
	if err != nil {
		t.Fatal(err)
	}
	drop := "\n[Service]\n"
	for _, line := range []string{"CapabilityBoundingSet=CAP_NET_RAW", "CapabilityBoundingSet=CAP_SYS_ADMIN", "RestrictAddressFamilies=AF_XDP", "LimitMEMLOCK=infinity"} {
		if strings.Count(string(unit), "\n# "+line+"\n") != 1 || !strings.Contains(string(guide), line) {
			t.Errorf("%s: not in the unit or the guide", line)
		}
		drop += line + "\n"
	}
	verifyUnit(t, "nf", strings.ReplaceAll(string(unit), "/usr/local/bin/proffer", "/bin/true")+drop)
}

// verifyUnit has systemd check a unit; it complains about anything that it does not know.
func verifyUnit(t *testing.T, verb, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "proffer-"+verb+".service")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify %s: %v\n%s", file, err, out)
	}
}

// TestCapabilitiesAreDocumented: those of the units.
func TestCapabilitiesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operate/farm.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range strings.Fields(fourCapabilities) {
		if !slices.Contains(strings.FieldsFunc(string(text), func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') }), c) {
			t.Errorf("docs/operate/farm.md does not name %s", c)
		}
	}
}

// TestVersion: the verb prints the line of the flag.
func TestVersion(t *testing.T) {
	_, flag, _ := call(t, "--version")
	if code, verb, _ := call(t, "version"); code != 0 || verb != flag || !strings.HasPrefix(verb, "proffer version ") {
		t.Errorf("exit %d, %q, by the flag %q", code, verb, flag)
	}
}
