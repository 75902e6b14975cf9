package loadsource

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/topo"
)

const apacheConf = `ServerRoot %[1]s
PidFile %[1]s/httpd.pid
DefaultRuntimeDir %[1]s
ErrorLog %[1]s/error.log
ServerName x
User daemon
Group daemon
Listen 127.0.0.1:%[2]s
LoadModule mpm_%[3]s_module /usr/lib/apache2/modules/mod_mpm_%[3]s.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so
KeepAliveTimeout 60
ExtendedStatus On
Redirect 404 /idle
ProxyPass /idle !
ProxyPass / http://127.0.0.1:%[4]s/ disablereuse=on
%[5]s
`

// httpd is a real Apache in front of a holder.
type httpd struct {
	*testing.T
	dir, conf, port string
}

func startApache(t *testing.T, mpm, more string) (*httpd, *clients) {
	t.Helper()
	h := newHolder(t)
	a := &httpd{t, folder(t), "", port(t)}
	a.conf = write(t, a.dir, "httpd.conf", fmt.Sprintf(apacheConf, a.dir, a.port, mpm, h.port(), more))
	a.control("start")
	t.Cleanup(a.kill)
	up(t, "tcp", "127.0.0.1:"+a.port)
	return a, &clients{T: t, holder: h, send: get("http://127.0.0.1:" + a.port)}
}

// control has httpd start, or start again, and returns when it has: requests before would be lost
// with the processes that end.
func (a *httpd) control(verb string) {
	a.Helper()
	starts := func() int {
		log, _ := os.ReadFile(filepath.Join(a.dir, "error.log"))
		return strings.Count(string(log), "resuming normal operations")
	}
	before := starts()
	if out, err := exec.Command("apache2", "-f", a.conf, "-k", verb).CombinedOutput(); err != nil {
		a.Fatalf("apache2 -k %s: %v\n%s", verb, err, out)
	}
	for late := time.Now().Add(patience); starts() == before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			a.Fatalf("httpd does not %s", verb)
		}
	}
}

func (a *httpd) pid() int {
	b, _ := os.ReadFile(filepath.Join(a.dir, "httpd.pid"))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return pid
}

// kill ends all processes of this httpd: they are one process group.
func (a *httpd) kill() {
	pid := a.pid()
	if pid < 2 {
		return
	}
	unix.Kill(-pid, unix.SIGKILL)
	for late := time.Now().Add(patience); unix.Kill(-pid, 0) == nil && time.Now().Before(late); {
		time.Sleep(10 * time.Millisecond)
	}
}

func (a *httpd) source() Source {
	return open(a.T, topo.Offering{Source: topo.Apache, From: filepath.Join(a.dir, "httpd.pid")})
}

var mpms = map[string]string{
	"prefork": "StartServers 2\nMinSpareServers 2\nServerLimit 64\nMaxRequestWorkers 64",
	"worker":  "ServerLimit 4\nThreadsPerChild 25\nMaxRequestWorkers 100",
	"event":   "ServerLimit 4\nThreadsPerChild 25\nMaxRequestWorkers 100",
	// The scoreboard in shared memory with a name.
	"event, by file": "ScoreBoardFile httpd.scoreboard",
}

// TestApache: the scoreboard of a real httpd has the requests that clients hold open, while
// connections are idle, through graceful restarts, restarts, and another httpd after it was
// killed.
func TestApache(t *testing.T) {
	for name, more := range mpms {
		mpm, _, _ := strings.Cut(name, ",")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, c := startApache(t, mpm, more)
			s := a.source()
			reads(t, s, 0)
			idle(t, "127.0.0.1:"+a.port, 10)
			reads(t, s, 0)
			held := 0
			for _, n := range []int{1, 7, 30} {
				c.more(n-held, n-held)
				held = n
				reads(t, s, uint32(n))
			}
			c.fewer(20)
			reads(t, s, 10)
			a.control("graceful")
			reads(t, s, 10)
			c.more(5, 5)
			reads(t, s, 15)
			c.fewer(10)
			reads(t, s, 5)
			a.control("graceful")
			c.more(5, 5)
			reads(t, s, 10)
			c.fewer(10)
			c.wait.Wait()
			reads(t, s, 0)
			a.control("restart")
			up(t, "tcp", "127.0.0.1:"+a.port)
			c.more(3, 3)
			reads(t, s, 3)
			a.kill()
			fails(t, s, "")
			fails(t, s, "does not run")
			c.wait.Wait()
			a.control("start")
			up(t, "tcp", "127.0.0.1:"+a.port)
			c.more(4, 4)
			reads(t, s, 4)
			c.fewer(4)
			reads(t, s, 0)
		})
	}
}

// TestApacheWithACrash: the requests of a process that crashes are no load.
func TestApacheWithACrash(t *testing.T) {
	a, c := startApache(t, "prefork", "StartServers 2\nServerLimit 64\nMaxRequestWorkers 64")
	s := a.source()
	c.more(6, 6)
	reads(t, s, 6)
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(a.pid())).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range strings.Fields(string(out)) {
		n, _ := strconv.Atoi(pid)
		if err := unix.Kill(n, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	reads(t, s, 0)
	c.wait.Wait()
}

// TestApacheWithFewCapabilities: CAP_SYS_PTRACE is enough to read a scoreboard, and is named where
// it is missing.
func TestApacheWithFewCapabilities(t *testing.T) {
	if pidFile := os.Getenv("PROFFER_TEST_PID_FILE"); pidFile != "" { // the process below
		s := open(t, topo.Offering{Source: topo.Apache, From: pidFile})
		got, err := s.Read(t.Context(), now())
		fmt.Println(got.Workers > 0, err)
		return
	}
	a, _ := startApache(t, "prefork", "")
	reads(t, a.source(), 0)
	for capabilities, want := range map[string]string{
		"-all,+sys_ptrace": "true <nil>",
		"-all":             "permission denied: the agent needs CAP_SYS_PTRACE",
	} {
		cmd := exec.Command("setpriv", "--bounding-set="+capabilities, "--inh-caps=-all", os.Args[0], "-test.run=^TestApacheWithFewCapabilities$")
		cmd.Env = append(os.Environ(), "PROFFER_TEST_PID_FILE="+filepath.Join(a.dir, "httpd.pid"))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s; want %s", capabilities, err, out, want)
		}
	}
}
