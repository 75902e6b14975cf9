package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/loadpage"
	"proffer/topo"
)

// escapes clear a terminal, in three ways.
const escapes = "\x1b[2J\u009b2J\u202e"

// TestNamedListener is the program with a name of TestApplicationIsNoFriend.
func TestNamedListener(t *testing.T) {
	at := os.Getenv("PROFFER_TEST_LISTEN")
	if at == "" {
		return
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
	}
}

// hostile is an application that does its worst to the agent of its server.
type hostile struct {
	t     *testing.T
	n     *testbed.Node
	dir   string // its own
	offer []topo.Offering
}

func newHostile(t *testing.T, n *testbed.Node) *hostile {
	t.Helper()
	h := &hostile{t: t, n: n, dir: filepath.Join(newHanded(t).dir, "own")}
	if err := errors.Join(os.Mkdir(h.dir, 0o755), os.Chown(h.dir, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	return h
}

// at is a path in its folder.
func (h *hostile) at(name string) string { return filepath.Join(h.dir, name) }

// service is another of the server.
func (h *hostile) service(name string, source topo.Source, from string) *topo.Offering {
	h.offer = append(h.offer, topo.Offering{Name: name, Source: source, From: from})
	return &h.offer[len(h.offer)-1]
}

// limits are in shared memory of this process, with a PID file: their product is a little above 2^64.
func (h *hostile) limits() {
	memory, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { unix.Munmap(memory) })
	binary.NativeEndian.PutUint64(memory, 54173528)
	binary.NativeEndian.PutUint32(memory[8:], 1244665385)
	binary.NativeEndian.PutUint32(memory[12:], 44109063)
	h.put("pid", fmt.Sprint(os.Getpid()))
	h.service("limits", topo.Apache, h.at("pid"))
}

func (h *hostile) put(name, text string) {
	if err := os.WriteFile(h.at(name), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *hostile) fifos() {
	if err := unix.Mkfifo(h.at("fifo"), 0o666); err != nil {
		h.t.Fatal(err)
	}
	h.service("fifo", topo.Apache, h.at("fifo"))
	h.service("fifo-page", topo.PageSource, "").Page = h.at("fifo")
}

// sockets has a link in the place of the agent's socket.
func (h *hostile) sockets(precious string) {
	if err := errors.Join(os.Symlink(precious, h.at("s.sock.new")), os.Lchown(h.at("s.sock.new"), 65534, 65534)); err != nil {
		h.t.Fatal(err)
	}
	o := h.service("socket", topo.PageSource, "")
	o.Page, o.PageMode = "unix:"+h.at("s.sock"), 0o666
}

// silent is a file system without a server that answers.
func (h *hostile) silent() {
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { server.Close() })
	dir := h.at("silent")
	if err := os.Mkdir(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := unix.Mount("silent", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	h.service("silent", topo.PageSource, "").Page = filepath.Join(dir, "page")
}

// endpoint answers with escapes.
func (h *hostile) endpoint() {
	l, err := h.n.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			fmt.Fprintf(conn, "HTTP/1.1 500 %s\r\nContent-Length: 0\r\n\r\n", escapes)
			conn.Close()
		}
	})}
	go server.Serve(l)
	h.t.Cleanup(func() { server.Close() })
	h.service("endpoint", topo.Nginx, "http://"+l.Addr().String())
}

// listener is a process with escapes for a name.
func (h *hostile) listener(at string) {
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		h.t.Fatal(err)
	}
	name := h.at("web" + escapes)
	if err := os.WriteFile(name, program, 0o755); err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command(name, "-test.run=^TestNamedListener$")
	cmd.Env = append(os.Environ(), "PROFFER_TEST_LISTEN="+at, "PROFFER_TEST_SOCKET=none") // builds nothing
	p, err := h.n.StartCommand(cmd)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { p.Stop() })
	kit.Eventually(h.t, "a listener at "+at, func() bool {
		return h.n.Do(func() error {
			c, err := net.DialTimeout("tcp", at, time.Second)
			if err == nil {
				c.Close()
			}
			return err
		}) == nil
	})
}

// TestApplicationIsNoFriend: beside applications that do their worst, at the start, while it runs and at
// the next start, the agent serves the load of another, small and printable, and ends when it is asked to.
func TestApplicationIsNoFriend(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Obedient(t, bed)
	n := bed.Servers[0]
	h := newHostile(t, n)
	precious := filepath.Join(bed.Dir, "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.limits()
	h.fifos()
	h.sockets(precious)
	h.silent()
	h.endpoint()
	named := net.JoinHostPort(bed.VIP.String(), "8100")
	h.listener(named)

	var control string
	s := kit.Settings(t, "hunt:static:4")
	s.Lasting, s.Measure, s.Page = true, topo.Page, pageOf(bed)
	s.Agent = func(to *testbed.Node, a *topo.Agent) {
		if to != n {
			return
		}
		control = a.Control
		for i, o := range h.offer {
			own := a.Services[0]
			own.Name, own.Source, own.From, own.Page, own.PageMode = o.Name, o.Source, o.From, o.Page, o.PageMode
			own.VIP.Port = uint16(8000 + i)
			a.Services = append(a.Services, own)
		}
		own := a.Services[0]
		own.Name, own.VIP.Port, own.Measure, own.Page = "named", 8100, topo.Busy, ""
		a.Services = append(a.Services, own)
	}
	farm := kit.Start(t, bed, s)
	w := startWriter(t, bed)
	w.say(3, 3)
	of := func(name string) (found api.ServiceStatus) {
		t.Helper()
		for _, svc := range kit.Status(t, farm, n).Services {
			if svc.Name == name {
				found = svc
			}
		}
		return found
	}
	trouble := func(name string) string {
		if svc := of(name); svc.Load != nil && svc.Load.Word != nil {
			return svc.Load.Word.Trouble
		}
		return ""
	}
	check := func(label string) {
		t.Helper()
		first := kit.Status(t, farm, n).Services[0].Name
		kit.Eventually(t, label+": the load of the other application", func() bool {
			l := of(first).Load
			return l.Busy != nil && *l.Busy == 3
		})
		for name, want := range map[string]string{
			"limits": "has no scoreboard of httpd 2.4", "fifo": "not a regular file", "fifo-page": "not a regular file", "socket": "is another file",
			"silent": "a reading hangs", "endpoint": `answers 500 \x1b[2J\u009b2J\u202e`,
		} {
			kit.Eventually(t, fmt.Sprintf("%s: the trouble of %s: %s, is %q", label, name, want, trouble(name)), func() bool { return strings.Contains(trouble(name), want) })
		}
		kit.Eventually(t, label+": the listener's name", func() bool { return strings.Contains(of("named").Listener, `web\x1b[2J\u009b2J\u202e (process`) })
		printable(t, "status", kit.In(t, n, kit.Proffer, "status", "--control", control))
		printable(t, "status in JSON", kit.In(t, n, kit.Proffer, "status", "--json", "--control", control))
		printable(t, "the log", farm.Daemon(n).Log())
		if most := peak(t, farm.Daemon(n).Pid()); most > 500<<20 {
			t.Errorf("%s: the agent has taken %d MiB", label, most>>20)
		}
		if info, err := os.Stat(precious); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: another file: %v, %v", label, info.Mode(), err)
		}
	}
	check("at the start")
	kit.End(t, farm.Daemon(n), unix.SIGTERM)
	if err := farm.Launch(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	check("at the next start")

	if err := os.Remove(h.at("s.sock.new")); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "the socket, when nothing is in its way", func() bool {
		conn, page, err := loadpage.Receive(h.at("s.sock"))
		if err != nil {
			return false
		}
		unix.Munmap(page)
		conn.Close()
		return true
	})
	if err := farm.Reload(t.Context(), n); err != nil {
		t.Error(err)
	}
	kit.End(t, farm.Daemon(n), unix.SIGTERM)
	for _, n := range []*testbed.Node{bed.Servers[0], bed.LBs[0]} {
		if n == bed.LBs[0] {
			kit.End(t, farm.Daemon(n), unix.SIGTERM)
		}
		kit.In(t, n, kit.Proffer, "detach")
	}
}

func printable(t *testing.T, label, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.ContainsFunc(strings.TrimRight(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s: %q", label, line)
		}
	}
}

// peak is the most memory that a process has had.
func peak(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kB, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kB << 10
}
