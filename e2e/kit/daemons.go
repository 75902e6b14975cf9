package kit

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
)

// Kill ends a daemon without letting it clean up.
func Kill(t *testing.T, p *testbed.Process) {
	t.Helper()
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatalf("kill %s: %v", p.Name, err)
	}
	<-p.Done()
}

// Forget ends a daemon of a farm that is not Lasting: no part of its state is left.
func Forget(t *testing.T, p *testbed.Process) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

// Restart runs a node's daemon on its configuration until the test ends and
// returns when it answers.
func Restart(t *testing.T, bed *testbed.Bed, n *testbed.Node, role string, flags ...string) *testbed.Process {
	t.Helper()
	p, err := n.Start(context.Background(), Proffer, append([]string{role, "--config", Configuration(bed, n)}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	Eventually(t, role+" on "+n.Name+" answers", func() bool {
		select {
		case <-p.Done():
			t.Fatalf("%s ended: %s", p.Name, p.Log())
		default:
		}
		s, err := api.Ask(t.Context(), Control(bed, n))
		return err == nil && s.PID == p.Pid()
	})
	return p
}

// End ends a daemon by a signal, to which it answers by exit code 0 if it can.
func End(t *testing.T, p *testbed.Process, how unix.Signal) {
	t.Helper()
	if err := p.Signal(how); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil && how != unix.SIGKILL {
		t.Errorf("after %v: %v: %s", how, err, p.Log())
	}
}

// Changed writes a node's configuration with another text in the place of one.
func Changed(t *testing.T, bed *testbed.Bed, n *testbed.Node, old, new string) {
	t.Helper()
	text, err := os.ReadFile(Configuration(bed, n))
	if err != nil || !strings.Contains(string(text), old) {
		t.Fatalf("no %q (%v) in\n%s", old, err, text)
	}
	if err := os.WriteFile(Configuration(bed, n), []byte(strings.ReplaceAll(string(text), old, new)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Setpriv is the command that runs another with the capabilities of a daemon's unit, and more, and
// no other.
func Setpriv(t *testing.T, verb string, more ...string) []string {
	t.Helper()
	unit, err := os.ReadFile("../../dist/proffer-" + verb + ".service")
	Must(t, err)
	_, rest, _ := strings.Cut(string(unit), "\nCapabilityBoundingSet=")
	line, _, found := strings.Cut(rest, "\n")
	if !found {
		t.Fatalf("the unit names no capabilities:\n%s", unit)
	}
	bounding := "-all"
	for _, c := range append(strings.Fields(line), more...) {
		bounding += ",+" + strings.ToLower(strings.TrimPrefix(c, "CAP_"))
	}
	return []string{Program(t, "setpriv"), "--bounding-set=" + bounding, "--inh-caps=-all", "--no-new-privs"}
}

// CPUOf returns what logs the share of a core that a node's daemon took since, and fails if it is above most
// percent.
func CPUOf(t *testing.T, farm *farmrun.Farm, n *testbed.Node) (spent func(what string, most float64)) {
	t.Helper()
	pid := farm.Daemon(n).Pid()
	before, began := ticksOf(t, pid), time.Now()
	return func(what string, most float64) {
		t.Helper()
		span, ms := time.Since(began), 10*(ticksOf(t, pid)-before)
		share := float64(ms) / 10 / span.Seconds()
		t.Logf("%s the daemon of %s took %d ms of CPU time in %v: %.1f %% of a core", what, n.Name, ms, span.Round(time.Millisecond), share)
		if share > most {
			t.Errorf("%s: %.1f %% of a core, want at most %.0f", what, share, most)
		}
	}
}

// ticksOf is the CPU time of a process, in units of 10 ms.
func ticksOf(t *testing.T, pid int) (ticks int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')'):]))
	for _, field := range fields[12:14] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return ticks
}
