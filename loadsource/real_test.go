package loadsource

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/topo"
)

// patience bounds every wait of these tests.
const patience = 20 * time.Second

// holder is a web server that holds each request until it is let go.
type holder struct {
	*httptest.Server
	arrived chan struct{}
	let     chan struct{}
}

func newHolder(t *testing.T) *holder {
	h := &holder{arrived: make(chan struct{}, 1000), let: make(chan struct{}, 1000)}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.arrived <- struct{}{}
		select {
		case <-h.let:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		close(h.let)
		h.Close()
	})
	return h
}

func (h *holder) port() string {
	_, port, _ := net.SplitHostPort(h.Listener.Addr().String())
	return port
}

// clients hold requests open.
type clients struct {
	*testing.T
	*holder
	send func() error
	wait sync.WaitGroup
}

// more sends requests and returns when they are held; of those in a queue no holder knows.
func (c *clients) more(n, held int) {
	c.Helper()
	for range n {
		c.wait.Go(func() {
			if err := c.send(); err != nil {
				c.Log("a request:", err)
			}
		})
	}
	for range held {
		select {
		case <-c.arrived:
		case <-time.After(patience):
			c.Fatal("a request does not arrive")
		}
	}
}

// fewer lets requests go.
func (c *clients) fewer(n int) {
	for range n {
		c.let <- struct{}{}
	}
}

// get is a request by a connection of its own.
func get(url string) func() error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func() error {
		resp, err := client.Get(url)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
}

// idle opens connections, each with a request that is answered, and keeps them open.
func idle(t *testing.T, address string, n int) {
	t.Helper()
	for range n {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "GET /idle HTTP/1.1\r\nHost: x\r\n\r\n")
		conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

func open(t *testing.T, o topo.Offering) Source {
	t.Helper()
	o.Measure = topo.Page
	s, err := Open(&o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// reads waits until a source reads a number of requests in progress twenty times in turn: a
// program that starts again may refuse a request, or count a request that has just ended.
func reads(t *testing.T, s Source, want uint32) {
	t.Helper()
	late := time.Now().Add(patience)
	for good := 0; good < 20; time.Sleep(5 * time.Millisecond) {
		at := now()
		got, err := s.Read(t.Context(), at)
		if good++; err != nil || got.Busy != want || got.Written != at {
			good = 0
		}
		if time.Now().After(late) {
			t.Fatalf("read %+v, %v; want %d", got, err, want)
		}
	}
}

// fails waits until a source has an error with a text.
func fails(t *testing.T, s Source, want string) {
	t.Helper()
	var got Reading
	var err error
	for late := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if got, err = s.Read(t.Context(), now()); err != nil && strings.Contains(err.Error(), want) {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("read %+v, %v; want an error with %q", got, err, want)
		}
	}
}

// port is free.
func port(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// write writes a file of a folder of the test's that other users can enter.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "proffer-loadsource-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs a program in the foreground until the test ends, or the returned function is called.
func run(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		cmd.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // its children that are left
		if t.Failed() {
			t.Logf("%s:\n%s", name, out)
		}
	})
	return cmd
}

// up waits until a program takes connections.
func up(t *testing.T, network, address string) {
	t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial(network, address)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(late) {
			t.Fatal(err)
		}
	}
}
