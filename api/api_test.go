package api

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func socket(t *testing.T) string { return filepath.Join(t.TempDir(), "new", "lb.sock") }

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// soon is the next value of a channel; without one within 10 s the test fails.
func soon[T any](t *testing.T, values <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-values:
	case <-time.After(10 * time.Second):
		t.Error("nothing happened within 10 s")
	}
	return value
}

// answering runs a daemon's side until the test ends.
func answering(t *testing.T, path string, status func() (Status, error)) {
	t.Helper()
	l := listen(t, path)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, status) }()
	t.Cleanup(func() {
		cancel()
		if err := soon(t, ended); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
}

func TestStatusArrivesAsItWasGiven(t *testing.T) {
	want := Status{Role: "agent", Node: "s1", Locator: "5f00:0:2:1::/64", Interface: "eth0", XDP: "native", PID: 7, Flows: 1 << 40,
		Services: []ServiceStatus{
			{Name: "web", VIP: "[2001:db8:f::1]:80", Mode: "static:4, load page",
				Load: &LoadStatus{Threshold: 4, Asking: 1, Expected: 2, Open: 3, Word: &WordStatus{Source: "apache", From: "/run/httpd.pid", Busy: 5, Workers: 9, Age: 0.25, Trouble: "none"}}},
			{Name: "api", Mode: "always, load busy"},
		},
		Counters: map[string]uint64{"accept_avail": 1<<64 - 1, "pass_on_busy": 0},
	}
	path := socket(t)
	answering(t, path, func() (Status, error) { return want, nil })
	for range 3 {
		got, err := Ask(t.Context(), path)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, want)
		}
	}
}

func TestDaemonThatCannotAnswer(t *testing.T) {
	path := socket(t)
	answering(t, path, func() (Status, error) { return Status{}, errors.New("map gone") })
	if s, err := Ask(t.Context(), path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "500") {
		t.Fatalf("got %+v, %v", s, err)
	}
}

func TestWithoutDaemon(t *testing.T) {
	path := socket(t)
	_, err := Ask(t.Context(), path)
	if !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "no daemon answers at "+path+": is it running") {
		t.Fatal(err)
	}
}

func TestSilentDaemonDoesNotHoldTheAsker(t *testing.T) {
	path := socket(t)
	listen(t, path) // and does not accept
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Ask(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestOnlyRootAndGroupMayAsk(t *testing.T) {
	path := socket(t)
	listen(t, path)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o660 || info.Mode()&os.ModeSocket == 0 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := socket(t)
	l := listen(t, path).(*net.UnixListener)
	l.SetUnlinkOnClose(false) // as SIGKILL leaves it
	l.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("the test left no stale socket: %v", err)
	}
	answering(t, path, func() (Status, error) { return Status{Node: "second"}, nil })
	if s, err := Ask(t.Context(), path); err != nil || s.Node != "second" {
		t.Fatalf("got %+v, %v", s, err)
	}
}

func TestLiveSocketIsRefused(t *testing.T) {
	path := socket(t)
	answering(t, path, func() (Status, error) { return Status{Node: "first"}, nil })
	l, err := Listen(path)
	if err == nil {
		l.Close()
		t.Fatal("a second daemon took the socket of the first")
	}
	for _, want := range []string{path, "another daemon answers there", "set `control` to another path"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q: %v", want, err)
		}
	}
	if s, err := Ask(t.Context(), path); err != nil || s.Node != "first" {
		t.Fatalf("the first does not answer any more: %+v, %v", s, err)
	}
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lb.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := Listen(path); err == nil {
		l.Close()
		t.Fatal("a file was replaced by a socket")
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "precious" {
		t.Fatalf("the file is now %q, %v", data, err)
	}
	if _, err := Listen(filepath.Join(path, "below.sock")); err == nil || !strings.Contains(err.Error(), "make the folder of control socket") {
		t.Fatal(err)
	}
}

func TestClosedListenerEndsServe(t *testing.T) {
	l := listen(t, socket(t))
	ended := make(chan error, 1)
	go func() { ended <- Serve(t.Context(), l, func() (Status, error) { return Status{}, nil }) }()
	l.Close()
	if err := soon(t, ended); err == nil || !strings.Contains(err.Error(), "control socket") {
		t.Fatalf("serve: %v", err)
	}
}

// TestBegunAnswerIsGiven: a daemon that is to end does not close the plane under
// an answer that reads it.
func TestBegunAnswerIsGiven(t *testing.T) {
	path := socket(t)
	l := listen(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	begun, goOn := make(chan bool), make(chan bool)
	ended, answer := make(chan error, 1), make(chan error, 1)
	go func() {
		ended <- Serve(ctx, l, func() (Status, error) {
			begun <- true
			<-goOn
			return Status{Node: "late"}, nil
		})
	}()
	go func() {
		s, err := Ask(t.Context(), path)
		if err == nil && s.Node != "late" {
			err = errors.New("got " + s.Node)
		}
		answer <- err
	}()
	soon(t, begun)
	cancel()
	select {
	case err := <-ended:
		t.Errorf("Serve ended under an answer: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	if err := errors.Join(soon(t, answer), soon(t, ended)); err != nil {
		t.Error(err)
	}
}

// TestStuckAnswerDoesNotHoldServe: it has a second.
func TestStuckAnswerDoesNotHoldServe(t *testing.T) {
	path := socket(t)
	l := listen(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	begun, goOn := make(chan bool), make(chan bool)
	defer close(goOn)
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, l, func() (Status, error) {
			begun <- true
			<-goOn
			return Status{}, nil
		})
	}()
	go Ask(t.Context(), path)
	soon(t, begun)
	cancel()
	if err := soon(t, ended); err != nil {
		t.Error(err)
	}
}
