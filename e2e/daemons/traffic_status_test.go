package daemons

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"proffer/api"
	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestStatus: an operator reads the counters by name, as text and as JSON, from
// a daemon that has seen traffic.
func TestStatus(t *testing.T) {
	const requests = 8
	bed := kit.Up(t, testbed.Config{Servers: 1})
	kit.Serve(t, bed)
	kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	for range requests {
		works(t, bed)
	}
	kit.Settled(t, bed)
	for _, c := range []struct {
		node            *testbed.Node
		first           string
		counted, silent []string
	}{
		{bed.LBs[0], "lb lb1  5f00:0:1:1::/64 on eth0, XDP native, pid ",
			[]string{"offer", "stickiness_created", "flow_established", "steer", "stickiness_removed"},
			[]string{"recover", "deliver", "table_full", "drop_no_server", "drop_malformed_srh"}},
		{bed.Servers[0], "agent s1  5f00:0:2:1::/64 on eth0, XDP native, pid ",
			[]string{"accept_force", "acknowledged", "steered", "signal_create", "signal_remove", "out_direct"},
			[]string{"recovered", "unowned", "table_full", "drop_not_our_service", "refuse_full_reset"}},
	} {
		text := kit.In(t, c.node, kit.Proffer, "status", "--control", kit.Control(bed, c.node))
		if !strings.HasPrefix(text, c.first) || !strings.Contains(text, "[2001:db8:f::1]:80") {
			t.Errorf("status of %s begins and names its service otherwise than %q:\n%s", c.node.Name, c.first, text)
		}
		var s api.Status
		if err := json.Unmarshal([]byte(kit.In(t, c.node, kit.Proffer, "status", "--json", "--control", kit.Control(bed, c.node))), &s); err != nil {
			t.Fatalf("status --json of %s: %v", c.node.Name, err)
		}
		if s.Node != c.node.Name || s.Interface != "eth0" || len(s.Services) != 1 || s.Services[0].VIP != "[2001:db8:f::1]:80" {
			t.Errorf("status --json of %s: %+v", c.node.Name, s)
		}
		all := kit.In(t, c.node, kit.Proffer, "status", "--all", "--control", kit.Control(bed, c.node))
		for _, name := range c.counted {
			if n := printed(t, text, name); n < requests || s.Counters[name] < requests || printed(t, all, name) < requests {
				t.Errorf("%s of %s is %d as text, %d as JSON, want at least %d", name, c.node.Name, n, s.Counters[name], requests)
			}
		}
		for _, name := range c.silent {
			if n, ok := s.Counters[name]; !ok || n != 0 || printed(t, text, name) >= 0 || printed(t, all, name) != 0 {
				t.Errorf("%s of %s is %d (%v) as JSON, want 0, and only --all prints it:\n%s", name, c.node.Name, n, ok, text)
			}
		}
	}
}

// printed returns a counter's value in a printed status; −1: it is not there.
func printed(t *testing.T, text, name string) int {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` +(\d+)$`).FindStringSubmatch(text)
	if m == nil {
		return -1
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestStatusWithoutDaemon: without a daemon the answer is an error that names the
// socket.
func TestStatusWithoutDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "unused.sock")
	out, err := exec.Command(kit.Proffer, "status", "--control", socket).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "no daemon answers at "+socket) {
		t.Errorf("%v: %s", err, out)
	}
}
