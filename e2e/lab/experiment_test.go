package lab

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// startExperiment runs `proffer-lab experiment` as a process, without --out.
func startExperiment(t *testing.T, args ...string) *demoRun {
	t.Helper()
	d := &demoRun{ended: make(chan error, 1)}
	d.Cmd = exec.Command(kit.ProfferLab, append([]string{"experiment"}, args...)...)
	d.Stdout, d.Stderr = &d.stdout, &d.stderr
	if err := testbed.StartChild(d.Cmd, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	go func() { d.ended <- d.Wait() }()
	return d
}

// experimentJSON runs an experiment to its end, which is to be a good one, and
// returns what --json prints.
func experimentJSON(t *testing.T, args ...string) []byte {
	t.Helper()
	d := startExperiment(t, append(args, "--json")...)
	if code := d.finish(t); code != 0 {
		t.Fatalf("%q: exit %d\n%s\n%s", args, code, d.stderr.String(), d.stdout.String())
	}
	d.wantNone(t)
	return d.stdout.Bytes()
}

func wantFields(t *testing.T, object map[string]any, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, ok := object[name]; !ok {
			t.Errorf("there is no field %s in %v", name, object)
		}
	}
	if len(object) != len(names) {
		t.Errorf("%d fields, want %v: %v", len(object), names, object)
	}
}

// TestExperimentInterrupted: Ctrl-C in the middle leaves nothing and claims
// nothing.
func TestExperimentInterrupted(t *testing.T) {
	d := startExperiment(t, "resiliency", "--servers", "4", "--flows", "50", "--changes", "15", "--json")
	kit.Eventually(t, "the experiment's farm stands", func() bool {
		select {
		case err := <-d.ended:
			t.Fatalf("it ended: %v\n%s", err, d.stderr.String())
		default:
		}
		n := 0
		for _, what := range remains(t, d.Process.Pid) {
			if strings.HasPrefix(what, "/proc/") {
				n++
			}
		}
		return n > 20
	})
	if err := d.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := d.finish(t); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	if text := d.stderr.Bytes(); !bytes.Contains(text, []byte("interrupted")) || bytes.Contains(text, []byte("panic")) {
		t.Errorf("it said:\n%s", text)
	}
	if d.stdout.Len() > 0 {
		t.Errorf("it claims a result:\n%s", d.stdout.String())
	}
	d.wantNone(t)
}
