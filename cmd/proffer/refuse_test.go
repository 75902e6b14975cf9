package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"proffer/cmd/internal/cli"
	"proffer/cmd/internal/clitest"
)

const lbYAML = `node: {locator: 5f00:0:1:1::/64, interface: %s, domain: any}
signal_keys: none
control: %s
candidate_key: 000102030405060708090a0b0c0d0e0f
services:
  - vip: 2001:db8:f::1
    port: 80
    dispatch: hunt
    servers: [{name: s1, locator: 5f00:0:2:1::/64}]
`

const agentYAML = `node: {name: s1, locator: 5f00:0:2:1::/64, interface: %s, domain: any}
signal_keys: none
control: %s
services:
  - vip: 2001:db8:f::1
    port: 80
    acceptance: static:4
`

// write puts a configuration for a link into a new folder and returns the path
// of the file and of its control socket.
func write(t *testing.T, format, link string) (path, socket string) {
	t.Helper()
	dir := t.TempDir()
	path, socket = filepath.Join(dir, "node.yaml"), filepath.Join(dir, "node.sock")
	if err := os.WriteFile(path, fmt.Appendf(nil, format, link, socket), 0o644); err != nil {
		t.Fatal(err)
	}
	return path, socket
}

// wantUntouched demands that no program is on lo and no socket was made.
func wantUntouched(t *testing.T, socket string) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if x := lo.Attrs().Xdp; x != nil && x.Attached {
		t.Errorf("lo has an XDP program: %+v", x)
	}
	filters, err := netlink.FilterList(lo, netlink.HANDLE_MIN_EGRESS)
	if err != nil || len(filters) > 0 {
		t.Errorf("lo has filters: %v, %v", filters, err)
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("control socket %s was left: %v", socket, err)
	}
}

func TestMistakeInConfiguration(t *testing.T) {
	for _, c := range []struct{ verb, format, old, new, want string }{
		{"lb", lbYAML, "dispatch:", "dispath:", `%s:8:5: services[0].dispath: unknown key; did you mean dispatch? want name, vip`},
		{"lb", lbYAML, "port: 80", "port: 0", `%s:7:11: services[0].port: "0" is not a whole number from 1 to 65535`},
		{"agent", agentYAML, "acceptance:", "aceptance:", `%s:7:5: services[0].aceptance: unknown key; did you mean acceptance? want name, vip`},
		{"agent", agentYAML, "static:4", "static:65536", `%s:7:17: services[0].acceptance: "static:65536" is not always, static:C with C from 0 to 65535, or dynamic`},
		{"agent", agentYAML, "static:4", "sometimes", `%s:7:17: services[0].acceptance: "sometimes" is not always, static:C with C from 0 to 65535, or dynamic`},
	} {
		path, socket := write(t, strings.Replace(c.format, c.old, c.new, 1), "lo")
		want := fmt.Sprintf(c.want, path)
		code, stdout, stderr := call(t, c.verb, "--config", path)
		if code != cli.Failed || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s with %q: exit %d, stdout %q, stderr\n%swant\n%s", c.verb, c.new, code, stdout, stderr, want)
		}
		wantUntouched(t, socket)
	}
}

func TestFileThatCannotBeRead(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "no.yaml")
	for _, verb := range []string{"lb", "agent"} {
		wantLine(t, []string{verb, "--config", missing}, cli.Failed,
			"read configuration: open "+missing+": no such file or directory\n")
		dir := t.TempDir()
		wantLine(t, []string{verb, "-c", dir}, cli.Failed, "read configuration: read "+dir+": is a directory\n")
	}
}

func TestInterfaceThatDoesNotExist(t *testing.T) {
	for verb, format := range map[string]string{"lb": lbYAML, "agent": agentYAML} {
		path, socket := write(t, format, "nosuch0")
		wantLine(t, []string{verb, "--config", path}, cli.Failed, "link \"nosuch0\": ")
		wantUntouched(t, socket)
	}
}

func TestInterfaceThatIsNoEthernet(t *testing.T) {
	for verb, format := range map[string]string{"lb": lbYAML, "agent": agentYAML} {
		path, socket := write(t, format, "lo")
		code, _, stderr := call(t, verb, "--config", path)
		if code != cli.Failed {
			t.Errorf("%s on lo: exit %d, %s", verb, code, stderr)
		}
		wantUntouched(t, socket)
	}
}

func TestStatusWithoutDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "no.sock")
	for _, args := range [][]string{{"status", "--control", socket}, {"status", "--json", "--control", socket}} {
		wantLine(t, args, cli.Failed, "no daemon answers at "+socket+": is it running, and is this its `control` path? ")
	}
}

// TestNotRoot: without root a daemon fails and makes nothing.
func TestNotRoot(t *testing.T) {
	dir := clitest.OpenDir(t)
	calls := [][]string{{"detach"}}
	for verb, format := range map[string]string{"lb": lbYAML, "agent": agentYAML} {
		path := filepath.Join(dir, verb+".yaml")
		text := fmt.Sprintf(format, "lo", filepath.Join(dir, verb+".sock"))
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, []string{verb, "--config", path})
	}
	clitest.WantRoot(t, dir, calls...)
}
