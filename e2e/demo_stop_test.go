package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/lab/testbed"
)

var long = []string{"--servers", "4", "--requests", "100000", "--policies", "hunt:static:4", "--mean", "20ms", "--load", "0.5"}

// running waits until a demo's daemons work and requests flow.
func (d *demo) running(t *testing.T) {
	t.Helper()
	eventually(t, "the demo's daemons run", func() bool {
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

// TestDemoInterrupted: Ctrl-C, or SIGTERM, at any moment leaves nothing.
func TestDemoInterrupted(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal os.Signal
		wait   bool
	}{{"SIGINT", unix.SIGINT, true}, {"SIGTERM", unix.SIGTERM, true}, {"SIGINT at the start", unix.SIGINT, false}} {
		t.Run(c.name, func(t *testing.T) {
			d := startDemo(t, long...)
			if c.wait {
				d.running(t)
			} else {
				eventually(t, "the demo has begun", func() bool { return len(remains(t, d.Process.Pid)) > 0 })
			}
			if err := d.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			if code := d.finish(t); code != 1 {
				t.Errorf("exit %d, want 1", code)
			}
			if text := d.stderr.String(); !strings.Contains(text, "interrupted") || strings.Contains(text, "panic") {
				t.Errorf("it said:\n%s", text)
			}
			if d.stdout.Len() > 0 {
				t.Errorf("it claims a result:\n%s", d.stdout.String())
			}
			d.wantNone(t)
		})
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
