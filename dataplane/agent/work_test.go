package agent_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/proof/rig"
)

// The load measure `work`, with real programs.

const workPort = 8000

// newWorkRig counts the work of the service at workPort.
func newWorkRig(t *testing.T) *rig.Agent {
	t.Helper()
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(workPort, byWork))
	if why := r.NoWork(); why != "" {
		t.Fatal("work is not counted:", why)
	}
	if err := r.RecountWork(); err != nil {
		t.Fatal(err)
	}
	return r
}

func workOf(r *rig.Agent, t *testing.T) *dataplane.Work {
	t.Helper()
	l, err := r.Load(0)
	if err != nil || l.Work == nil {
		t.Fatal(l, err)
	}
	return l.Work
}

// sum is the work but for the listener's queue.
func sum(w *dataplane.Work) uint32 { return w.Unread + w.Early + w.Run + max(w.Blocked, w.Out) }

// settles waits until the work is between two numbers, and stays there.
func settles(r *rig.Agent, t *testing.T, label string, least, most uint32) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for since := time.Now(); time.Since(since) < 500*time.Millisecond; time.Sleep(5 * time.Millisecond) {
		w := workOf(r, t)
		if n := sum(w); n >= least && n <= most {
			continue
		}
		if since = time.Now(); since.After(deadline) {
			t.Fatalf("%s: %+v is not between %d and %d", label, *w, least, most)
		}
	}
	t.Logf("%s: %+v", label, *workOf(r, t))
}

// serve starts a program in the test's network namespace, which listens at a port.
func serve(t *testing.T, port int, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: 0}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		cmd.Wait()
	})
	listens(t, port)
	return cmd
}

// listens waits until a port of the VIP is open.
func listens(t *testing.T, port int) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("a listener at %d", port), func() bool {
		found, err := os.ReadFile("/proc/thread-self/net/tcp6")
		four, err4 := os.ReadFile("/proc/thread-self/net/tcp")
		if err != nil || err4 != nil {
			t.Fatal(err, err4)
		}
		return regexp.MustCompile(fmt.Sprintf(":%04X 0+:0000 0A ", port)).Match(append(found, four...))
	})
}

// clients opens n connections and sends each a text, which may be empty.
func clients(t *testing.T, n int, from uint16, text string) (fds []int) {
	t.Helper()
	for i := range n {
		fd := rig.Dial(t, from+uint16(i), workPort)
		if text != "" {
			if _, err := unix.Write(fd, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		fds = append(fds, fd)
	}
	return fds
}

// answered reads an answer of each connection to the end of its headers.
func answered(t *testing.T, fds []int) {
	t.Helper()
	for _, fd := range fds {
		var b [4096]byte
		if n, err := unix.Read(fd, b[:]); err != nil || n == 0 {
			t.Fatalf("no answer: %d %v", n, err)
		}
	}
}

const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// nginx starts nginx with a server's settings; its workers are two.
func nginx(t *testing.T, port int, server string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off; pid %[1]s/pid; error_log stderr error; worker_processes 2; user root; worker_rlimit_nofile 16384;
events { worker_connections 16000; }
http { access_log off; keepalive_timeout 600; keepalive_requests 1000000; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
%[2]s }`, dir, server)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return serve(t, port, "nginx", "-e", "stderr", "-p", dir, "-c", conf)
}

func at(port int) string {
	return net.JoinHostPort(rig.VipAddr.String(), fmt.Sprint(port))
}

// TestWorkNginxIdle: idle connections of HTTP/1.1 are no work.
func TestWorkNginxIdle(t *testing.T) {
	r := newWorkRig(t)
	nginx(t, workPort, fmt.Sprintf(`server { listen %s; location / { return 200 "ok"; } }`, at(workPort)))
	answered(t, clients(t, 200, 20000, request))
	settles(r, t, "200 idle connections", 0, 0)
}

// slowThreads serves each connection with a thread. A request waits until its gate opens.
const slowThreads = `
import os, socket, sys, threading
l = socket.socket(socket.AF_INET6); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind((sys.argv[1], int(sys.argv[2]))); l.listen(512)
def serve(c):
    while c.recv(4096):
        os.close(os.open(sys.argv[3], os.O_RDONLY))
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
while True:
    threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
`

// serveSlowly starts slowThreads. Its requests are answered after open.
func serveSlowly(t *testing.T, port int) (cmd *exec.Cmd, open func()) {
	t.Helper()
	path, open := gate(t)
	return serve(t, port, "python3", "-c", slowThreads, rig.VipAddr.String(), fmt.Sprint(port), path), open
}

// gate is a pipe that cannot be opened to read until it is opened to write.
func gate(t *testing.T) (path string, open func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func() {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
	}
}

func TestWorkThreads(t *testing.T) {
	r := newWorkRig(t)
	_, open := serveSlowly(t, workPort)
	clients(t, 20, 21000, "")
	settles(r, t, "20 connections without a request", 0, 0)
	fds := clients(t, 10, 22000, request)
	settles(r, t, "10 slow requests", 10, 10)
	open()
	answered(t, fds)
	settles(r, t, "answered", 0, 0)
}

// TestWorkUpstream: requests that wait for another server.
func TestWorkUpstream(t *testing.T) {
	r := newWorkRig(t)
	_, open := serveSlowly(t, 8001)
	nginx(t, workPort, fmt.Sprintf(`server { listen %s; location / { proxy_pass http://%s; } }`, at(workPort), at(8001)))
	fds := clients(t, 10, 22000, request)
	settles(r, t, "10 slow requests", 10, 10)
	open()
	answered(t, fds)
	settles(r, t, "answered", 0, 0)
}

// TestWorkCrash: requests end with their process.
func TestWorkCrash(t *testing.T) {
	r := newWorkRig(t)
	cmd, _ := serveSlowly(t, workPort)
	clients(t, 10, 22000, request)
	settles(r, t, "10 slow requests", 10, 10)
	unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	cmd.Wait()
	settles(r, t, "killed", 0, 0)
}

// handsOver has a thread that answers a connection's first request, and reads its second one, which
// another answers. The first waits for a third one then.
const handsOver = `
import queue, socket, sys, threading
l = socket.socket(socket.AF_INET6); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind((sys.argv[1], int(sys.argv[2]))); l.listen(512)
given, never = queue.Queue(), threading.Event()
def read(c):
    c.send(c.recv(4096))
    c.recv(4096)
    given.put(c)
    never.wait()
def answer():
    while True:
        given.get().send(b"ok")
threading.Thread(target=answer, daemon=True).start()
while True:
    threading.Thread(target=read, args=(l.accept()[0],), daemon=True).start()
`

// TestWorkHandsOver: a thread that handed its request over, as those of Go's runtime, is no work
// when another has answered.
func TestWorkHandsOver(t *testing.T) {
	r := newWorkRig(t)
	serve(t, workPort, "python3", "-c", handsOver, rig.VipAddr.String(), fmt.Sprint(workPort))
	ask := func(from uint16) {
		t.Helper()
		fds := clients(t, 10, from, request)
		answered(t, fds)
		sendAll(t, fds, request)
		answered(t, fds)
	}
	ask(22000)
	if err := r.RecountWork(); err != nil { // the threads that slept before the first such answer
		t.Fatal(err)
	}
	settles(r, t, "answered", 0, 0)
	ask(23000)
	settles(r, t, "answered again", 0, 0)
}
