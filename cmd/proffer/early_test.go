package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const asProffer = "TEST_AS_PROFFER" // in the environment of this test's program: it is proffer

func TestMain(m *testing.M) {
	if os.Getenv(asProffer) != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestEarlyIsFirst: SIGHUP is ignored before any package but of Go's own is initialised.
func TestEarlyIsFirst(t *testing.T) {
	cmd := exec.Command(os.Args[0], "version")
	cmd.Env = append(os.Environ(), asProffer+"=1", "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(out), "init proffer/cmd/internal/early ")
	if !found || strings.Contains(before, ".com/") || strings.Contains(before, "init proffer/") {
		t.Errorf("before it these are initialised:\n%s", before)
	}
}

// TestHangupAtTheStart: a SIGHUP at any moment of the start ends no daemon that was started with SIGHUP
// ignored. Started otherwise, it is ended in its first milliseconds, before any code of a Go program
// runs: how often is printed.
func TestHangupAtTheStart(t *testing.T) {
	for _, role := range []string{"lb", "agent", "edge", "nf"} {
		for _, after := range []time.Duration{0, 1, 2, 5, 10, 20} {
			after *= time.Millisecond
			const tries = 10
			unprepared := 0
			for range tries {
				if endedByHangup(t, after, role, `exec "$@"`) {
					unprepared++
				}
				if endedByHangup(t, after, role, `trap "" HUP; exec "$@"`) {
					t.Errorf("%s: ended by SIGHUP after %v, though that was ignored when it began", role, after)
				}
			}
			t.Logf("%s: SIGHUP after %v ended %d of %d that were started without a word on it", role, after, unprepared, tries)
		}
	}
}

// endedByHangup starts a daemon by a line of shell, and sends SIGHUP so long after its shell gave way to it.
func endedByHangup(t *testing.T, after time.Duration, role, line string) bool {
	t.Helper()
	cmd := exec.Command("sh", "-c", line, "sh", os.Args[0], role, "--config", "/nonexistent")
	cmd.Env = append(os.Environ(), asProffer+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for isShell(cmd.Process.Pid) {
	}
	time.Sleep(after)
	if err := cmd.Process.Signal(unix.SIGHUP); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	_ = cmd.Wait() // without its configuration it ends by itself
	how := cmd.ProcessState.Sys().(interface {
		Signaled() bool
		Signal() unix.Signal
	})
	return how.Signaled() && how.Signal() == unix.SIGHUP
}

// isShell is false once a process runs this test's program, or has ended.
func isShell(pid int) bool {
	exe, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	self, _ := os.Executable()
	return err == nil && exe != self
}
