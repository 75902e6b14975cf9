package load

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/topo"
)

const apacheConf = `ServerRoot %[1]s
PidFile %[1]s/httpd.pid
DefaultRuntimeDir %[1]s
DocumentRoot %[1]s
ErrorLog %[1]s/error.log
ServerName x
User daemon
Group daemon
Listen [%[2]s]:%[3]d
LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
ServerLimit 16
MaxRequestWorkers 16
KeepAliveTimeout 300
`

func httpdPID(bed *testbed.Bed, n *testbed.Node) string {
	return filepath.Join(bed.Dir, "httpd-"+n.Name, "httpd.pid")
}

// httpd runs Apache on a server's VIP.
func httpd(t *testing.T, bed *testbed.Bed, n *testbed.Node) *testbed.Process {
	t.Helper()
	dir := filepath.Dir(httpdPID(bed, n))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(dir, "httpd.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, apacheConf, dir, bed.VIP, testbed.Port), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := n.StartCommand(exec.Command(kit.Program(t, "apache2"), "-f", conf, "-D", "FOREGROUND"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop() })
	kit.Eventually(t, "httpd listens on "+n.Name, func() bool {
		select {
		case <-p.Done():
			t.Fatalf("httpd ended: %s", p.Log())
		default:
		}
		return len(kit.TCP6(t, bed, n, "0A")) == 1
	})
	return p
}

// orphan kills httpd's first process. The others end with the test.
func orphan(t *testing.T, p *testbed.Process) {
	t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, child := range strings.Fields(string(children)) {
			pid, _ := strconv.Atoi(child)
			unix.Kill(pid, unix.SIGKILL)
		}
	})
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// TestScoreboardDrivesAcceptance: offers are decided by the workers of httpd with a request, not by
// idle connections; a scoreboard that is gone is no load.
func TestScoreboardDrivesAcceptance(t *testing.T) {
	const conns = 12
	bed := kit.Up(t, testbed.Config{Servers: 2})
	s := kit.Settings(t, "hunt:static:4")
	s.Agent = func(n *testbed.Node, a *topo.Agent) {
		o := &a.Services[0]
		o.Measure, o.Source, o.From = topo.Page, topo.Apache, httpdPID(bed, n)
	}
	processes := map[*testbed.Node]*testbed.Process{}
	for _, n := range bed.Servers {
		processes[n] = httpd(t, bed, n)
	}
	farm := kit.Start(t, bed, s)
	meets := func(status string, counters ...string) {
		t.Helper()
		want := map[string]int{}
		for _, c := range counters {
			want[c] = conns
		}
		kit.EventuallyIs(t, "decisions", fmt.Sprint(want), func() string { return fmt.Sprint(decisionsOn(t, farm, conns)) })
		for _, n := range bed.Servers {
			kit.Eventually(t, "the status of "+n.Name+" has "+status, func() bool {
				return strings.Contains(kit.In(t, n, kit.Proffer, "status", "--control", kit.Control(bed, n)), status)
			})
		}
	}
	hold := func(n *testbed.Node, text string, conns int) (open []net.Conn) {
		t.Helper()
		for range conns {
			c, err := n.DialContext(t.Context(), "tcp6", fmt.Sprintf("[%s]:%d", bed.VIP, testbed.Port))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		return open
	}
	meets("load apache", "accept_avail")
	var half []net.Conn
	for _, n := range bed.Servers {
		hold(n, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 8) // answered, and kept alive
		half = append(half, hold(n, "GET /", 3)...)
	}
	meets(", apache busy 3 of ", "accept_avail")
	for _, n := range bed.Servers {
		half = append(half, hold(n, "GET /", 1)...)
	}
	meets(", apache busy 4 of ", "pass_on_busy", "accept_force")
	for _, c := range half {
		c.Close()
	}
	meets(", apache busy 0 of ", "accept_avail")
	meets("listener  apache2 (process ", "accept_avail")
	for _, p := range processes { // httpd's first process ends, and the others serve on
		orphan(t, p)
	}
	meets("does not run", "pass_on_unknown_load", "accept_force")
	for _, n := range bed.Servers {
		kit.EventuallyIs(t, "the log of "+n.Name+" names it, times", 1, func() int {
			return strings.Count(farm.Daemon(n).Log(), "the load is not known: offers are passed on")
		})
	}
}
