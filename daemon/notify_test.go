package daemon

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestNotifies: the service manager learns each state in its order: ready when packets flow, a
// reload from its begin to its end, good or not, and the end before anything is detached.
func TestNotifies(t *testing.T) {
	m := newMachine(t, lbFile)
	m.clock.set(5 * time.Second)
	p := m.running(LB)
	m.hangup()
	m.logs("configuration reloaded")
	m.wantReloads(1, 0)
	m.change("dispatch: hunt", "dispatch: hint")
	m.hangup()
	m.logs("configuration not reloaded")
	m.wantReloads(1, 1)
	p.end()
	reload := "RELOADING=1\nMONOTONIC_USEC=5000000"
	want := []string{"READY=1", reload, "READY=1", reload, "READY=1", "STOPPING=1"}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(m.states, want) {
		t.Errorf("the service manager got %q, want %q", m.states, want)
	}
}

// TestNotReady: a daemon that does not start is never ready.
func TestNotReady(t *testing.T) {
	m := newMachine(t, lbFile)
	m.fail("attach")
	if err := m.start(LB).wait(); err == nil {
		t.Error("it started")
	}
	if slices.Contains(m.states, isReady) {
		t.Errorf("the service manager got %q", m.states)
	}
}

// TestNotifySocket: a state is a datagram to the socket that the environment names, by path
// or abstract; without one, nothing is sent.
func TestNotifySocket(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "notify"), "@proffer-notify-test"} {
		name := path
		if name[0] == '@' {
			name = "\x00" + name[1:]
		}
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		t.Setenv("NOTIFY_SOCKET", path)
		if err := notify(isReady); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 100)
		if n, err := conn.Read(buffer); err != nil || string(buffer[:n]) != "READY=1" {
			t.Errorf("%s: got %q, %v", path, buffer[:n], err)
		}
	}
	t.Setenv("NOTIFY_SOCKET", "/nowhere/notify")
	if err := notify(isReady); err == nil {
		t.Error("a state was sent nowhere")
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := notify(isReady); err != nil {
		t.Error(err)
	}
}

// TestNotifyStalled: a service manager that takes nothing stops no daemon.
func TestNotifyStalled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	failed := make(chan error)
	go func() {
		for {
			if err := notify(isReady); err != nil { // its queue is full
				failed <- err
				return
			}
		}
	}()
	select {
	case err := <-failed:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it waits")
	}
}
