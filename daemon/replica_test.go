package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/control"
)

// book is a log that a test reads while it is written.
type book struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// starter is a replica that serves until the test ends, with its log.
func starter(t *testing.T) (*replica, *book, func()) {
	t.Helper()
	log := &book{}
	r := newReplica(slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.serve(ctx) }()
	end := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return r, log, end
}

// shell wants a script run as the how manieth, at a time when it may.
func (r *replica) shell(t *testing.T, script string, starts uint64) {
	t.Helper()
	r.want(time.Duration(starts)*control.Patience, start{command: []string{"/bin/sh", "-c", script}, down: []string{"n2", "n3"}})
	if s := r.describe(nil); s == nil || s.Starts != starts {
		t.Fatalf("status %+v, want %d starts", s, starts)
	}
}

func (r *replica) idle() bool { return !r.describe([]string{"x"}).Running }

// TestReplicaStarts: a command's end and output are in the log, its failures in the status, too.
func TestReplicaStarts(t *testing.T) {
	r, log, _ := starter(t)
	if got := r.describe(nil); got != nil {
		t.Errorf("without a command: %+v", got)
	}
	r.shell(t, `echo "down: $PROFFER_DOWN"`, 1)
	wantSoon(t, "no end", func() bool {
		return r.idle() && strings.Contains(log.String(), `ended" command="[/bin/sh -c echo`) && strings.Contains(log.String(), `output="down: n2 n3"`)
	})
	r.shell(t, "echo no room >&2; exit 3", 2)
	wantSoon(t, "no failure", func() bool {
		s := r.describe(nil)
		return r.idle() && s.Failures == 1 && s.Error == "exit status 3" && strings.Contains(log.String(), `error="exit status 3" output="no room"`)
	})
	r.want(3*control.Patience, start{command: []string{"/nowhere/start"}})
	wantSoon(t, "a program that is not there is no failure", func() bool {
		s := r.describe(nil)
		return s.Failures == 2 && strings.Contains(s.Error, "/nowhere/start: no such file")
	})
	r.shell(t, "yes 0123456789 | head -c 100000", 4)
	wantSoon(t, "no success", func() bool { return r.idle() && r.describe(nil).Error == "" })
	if n := len(log.String()); n > 5000 {
		t.Errorf("a log of %d bytes", n)
	}
}

// TestReplicaIsOne: a command that runs is not run again, nor one that was begun lately.
func TestReplicaIsOne(t *testing.T) {
	r, log, _ := starter(t)
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	r.shell(t, "read x < "+gate, 1)
	again := start{command: []string{"/bin/true"}}
	r.want(2*control.Patience-1, again)
	r.want(2*control.Patience, again)
	for _, want := range []string{"was begun lately: it is not run again", "still runs: it is not run again"} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%q is in the log %d times:\n%s", want, n, log)
		}
	}
	if s := r.describe(nil); s.Starts != 1 || !s.Running {
		t.Errorf("status %+v", s)
	}
	if err := os.WriteFile(gate, []byte("x\n"), 0); err != nil {
		t.Fatal(err)
	}
	wantSoon(t, "no end", r.idle)
}

// TestReplicaEnds: a command that takes too long is killed with its children, and so is one at the
// daemon's end; a child that goes on after a command's end does no harm, and lives.
func TestReplicaEnds(t *testing.T) {
	r, log, end := starter(t)
	at := filepath.Join(t.TempDir(), "pid")
	child := func() (pid int) {
		t.Helper()
		wantSoon(t, "no child", func() bool {
			text, err := os.ReadFile(at)
			pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
			return err == nil && pid > 0
		})
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	gone := func(pid int) {
		t.Helper()
		wantSoon(t, "a child lives", func() bool {
			text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			return err != nil || strings.Contains(string(text), ") Z ") // its parent may never wait
		})
	}
	sleeps := "sleep 1000 & echo $! > " + at
	r.shell(t, sleeps, 1)
	pid := child()
	wantSoon(t, "no end", r.idle)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil || r.describe(nil).Failures != 0 {
		t.Errorf("kill the child: %v, status %+v", err, r.describe(nil))
	}
	r.within = 3 * time.Second // in which the shell begins, on a machine however busy
	r.shell(t, sleeps+"; wait", 2)
	gone(child())
	wantSoon(t, "no failure", func() bool { return r.describe(nil).Error == "killed, as it took longer than 3s" })
	r.within = replicaWithin
	r.shell(t, sleeps+"; wait", 3)
	pid = child()
	end()
	gone(pid)
	if !strings.Contains(log.String(), "context canceled") {
		t.Errorf("no failure at the end:\n%s", log)
	}
}
