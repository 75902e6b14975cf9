package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proffer/cmd/internal/cli"
)

const setupFile = `node: {locator: 5f00:0:1:1::/64, interface: eth9, domain: any}
signal_keys: none
candidate_key: 000102030405060708090a0b0c0d0e0f
services:
  - {name: web, vip: 2001:db8:f::1, port: 80, dispatch: single, servers: [{name: s1, delivery: dt6, locator: "5f00:0:2:1::/64"}]}
`

// TestServerSetup: wrong usage is 2, a wrong file and a wrong host 1.
func TestServerSetup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lb.yaml")
	if err := os.WriteFile(path, []byte(setupFile), 0o600); err != nil {
		t.Fatal(err)
	}
	const see = "; see `proffer server-setup --help`\n"
	wantLine(t, []string{"server-setup"}, cli.Usage, "SERVER is missing: the name of a server in the configuration"+see)
	wantLine(t, []string{"server-setup", "a", "b"}, cli.Usage, "proffer server-setup takes one SERVER, got \"b\" as well"+see)
	wantLine(t, []string{"server-setup", "s1"}, cli.Usage, "--config FILE is missing: a load balancer's YAML configuration\n")
	wantLine(t, []string{"server-setup", "s1", "-c", path, "--check", "--undo"}, cli.Usage, "--check and --undo exclude each other\n")
	for _, link := range []string{"", "eth0; rm -rf x", "a/b", "..", "-x", "sixteen-bytes-ab", "$x", "é"} {
		wantLine(t, []string{"server-setup", "s1", "-c", path, "--link", link}, cli.Usage,
			fmt.Sprintf("--link %q is no name of a link: want up to 15 letters, digits and ._@+-\n", link))
	}
	wantLine(t, []string{"server-setup", "s2", "-c", path}, cli.Usage, "no service has a server \"s2\"; want one of s1\n")
	wantLine(t, []string{"server-setup", "s1", "-c", path + "x"}, cli.Failed, "read the configuration: ")
	code, out, _ := call(t, "server-setup", "s1", "-c", path, "--link", "eth7")
	if code != cli.OK || !strings.Contains(out, "\nip -6 route replace 5f00:0:2:1:d7::/128 encap seg6local action End.DT6 table local dev eth7\n") {
		t.Errorf("exit %d: %s", code, out)
	}
	code, out, errOut := call(t, "server-setup", "s1", "-c", path, "--link", "nosuch.100", "--check", "--json")
	var report struct {
		Server string
		Steps  []struct {
			Why, Command, Undo, Wrong string
			OK                        *bool
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Server != "s1" || len(report.Steps) != 3 {
		t.Fatalf("%v: %s", err, out)
	}
	if s := report.Steps[0]; s.OK == nil || *s.OK || s.Wrong != "no link nosuch.100: name another one by --link" {
		t.Errorf("a host without the link: %+v", s)
	}
	for _, s := range report.Steps[1:] {
		if s.OK == nil || *s.OK || s.Wrong == "" || s.Command == "" || s.Undo == "" || s.Why == "" {
			t.Errorf("a host without the set-up: %+v", s)
		}
	}
	if code != cli.Failed || errOut != "proffer: 3 of 3 steps are wrong on this host\n" {
		t.Errorf("exit %d, %s", code, errOut)
	}
}
