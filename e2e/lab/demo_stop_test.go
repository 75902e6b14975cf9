package lab

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

var long = []string{"--servers", "4", "--requests", "100000", "--policies", "hunt:static:4", "--mean", "20ms", "--load", "0.5"}

// running waits until a demo's daemons work and requests flow.
func (d *demoRun) running(t *testing.T) {
	t.Helper()
	kit.Eventually(t, "the demo's daemons run", func() bool {
		select {
		case err := <-d.ended:
			t.Fatalf("the demo ended: %v\n%s", err, d.stderr.String())
		default:
		}
		n := 0
		for _, what := range remains(t, d.Process.Pid) {
			if strings.HasPrefix(what, "/proc/") {
				n++
			}
		}
		return n == 5 // an LB and four agents
	})
}

// TestDemoInterrupted: Ctrl-C, a closed terminal (SIGHUP) or any other signal that ends
// processes, at any moment, leaves nothing.
func TestDemoInterrupted(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal unix.Signal
		wait   bool
	}{
		{"SIGINT", unix.SIGINT, true}, {"SIGTERM", unix.SIGTERM, true}, {"SIGHUP", unix.SIGHUP, true},
		{"SIGQUIT", unix.SIGQUIT, true}, {"SIGUSR1", unix.SIGUSR1, true}, {"SIGXFSZ", unix.SIGXFSZ, true},
		{"SIGINT at the start", unix.SIGINT, false}, {"SIGHUP at the start", unix.SIGHUP, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := startDemo(t, long...)
			if c.wait {
				d.running(t)
			} else {
				kit.Eventually(t, "the demo has begun", func() bool { return len(remains(t, d.Process.Pid)) > 0 })
			}
			d.interrupt(t, c.signal)
			if text := d.stderr.String(); !strings.Contains(text, "interrupted") || strings.Contains(text, "panic") {
				t.Errorf("it said:\n%s", text)
			}
		})
	}
}

// interrupt sends a signal and wants an end without a result or remains.
func (d *demoRun) interrupt(t *testing.T, signal unix.Signal) {
	t.Helper()
	if err := d.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	if code := d.finish(t); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	if d.stdout.Len() > 0 {
		t.Errorf("it claims a result:\n%s", d.stdout.String())
	}
	d.wantNone(t)
}

// TestDemoWithoutReader: stderr is a pipe without a reader, as after `| head`; the demo goes
// on.
func TestDemoWithoutReader(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read.Close()
	d := newDemo(t, long...)
	d.Stderr = write
	d.begin(t)
	write.Close()
	d.running(t)
	d.interrupt(t, unix.SIGTERM)
}

// TestDemoSavesAsItGoes: the rows of a policy are there when its run is over, so that an
// interruption in the next run does not cost them.
func TestDemoSavesAsItGoes(t *testing.T) {
	d := startDemo(t, "--servers", "4", "--requests", "600", "--policies", "single,hunt:static:4,hunt:static:8,hunt:dynamic", "--mean", "20ms", "--load", "0.5")
	path := filepath.Join(d.out, "rows-single.csv")
	kit.Eventually(t, "the first policy's rows are written, or the demo ended", func() bool {
		_, err := os.Stat(path)
		return err == nil || len(d.ended) > 0
	})
	d.interrupt(t, unix.SIGHUP)
	if rows := readRows(t, path); len(rows) < 60 { // fewer than 600 if they left late
		t.Errorf("%d rows", len(rows))
	}
}

// TestDemoFullDisk: where files cannot be written the result is printed all the same, what
// can be written is, and the exit code tells.
func TestDemoFullDisk(t *testing.T) {
	d := newDemo(t, append(small, "--json", "--mean", "20ms")...)
	if err := os.MkdirAll(d.out, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, full := range []string{"rows-single.csv", "cdf.svg"} {
		if err := os.Symlink("/dev/full", filepath.Join(d.out, full)); err != nil {
			t.Fatal(err)
		}
	}
	d.begin(t)
	code, text := d.finish(t), d.stderr.String()
	d.wantNone(t)
	for _, full := range []string{"rows-single.csv", "figure cdf"} {
		if !strings.Contains(text, full) {
			t.Errorf("it does not say that %s is not written:\n%s", full, text)
		}
	}
	if code != 1 || !strings.Contains(text, "no space left on device") {
		t.Errorf("exit %d:\n%s", code, text)
	}
	saved, err := os.ReadFile(filepath.Join(d.out, "results.json"))
	if err != nil || !bytes.Equal(saved, d.stdout.Bytes()) || len(saved) == 0 {
		t.Errorf("results.json differs from what was printed: %v\n%s\n%s", err, saved, d.stdout.String())
	}
	if rows := readRows(t, filepath.Join(d.out, "rows-hunt-static-4.csv")); len(rows) < 60 {
		t.Errorf("%d rows", len(rows))
	}
}

// TestDemoKilled: what SIGKILL leaves, the next run removes.
func TestDemoKilled(t *testing.T) {
	d := startDemo(t, long...)
	d.running(t)
	spaces, err := filepath.Glob("/run/netns/proffer-*")
	if err != nil || len(spaces) < 7 {
		t.Fatalf("namespaces %v, %v", spaces, err)
	}
	if err := d.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	d.finish(t)
	bed, err := testbed.Up(context.Background(), testbed.Config{Servers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer bed.Close()
	d.wantNone(t)
}
