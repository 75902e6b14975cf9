package daemon

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/api"
)

// reader takes lines when it is let to.
type reader struct {
	goes chan struct{} // a line may be taken; closed: all may
	fail func(line string) (n int, err error)

	mu   sync.Mutex
	text strings.Builder
}

func (r *reader) Write(line []byte) (int, error) {
	<-r.goes
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := len(line), error(nil)
	if r.fail != nil {
		n, err = r.fail(string(line))
	}
	r.text.Write(line[:n])
	return n, err
}

func (r *reader) read() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// newLines carries lines to r, and waits for the last of them as long as it takes.
func newLines(r *reader) *Lines {
	l := NewLines(r)
	l.last = patience
	return l
}

// TestLinesOfAStalledReader: no write waits; lines without room are lost and counted, and their number is in
// the log at their place when it moves again.
func TestLinesOfAStalledReader(t *testing.T) {
	r := &reader{goes: make(chan struct{})}
	l := newLines(r)
	const length = 1000
	line := func(i int) string { return fmt.Sprintf("%-*d\n", length-1, i) }
	written := 0
	for ; l.State().Lost < 10; written++ {
		fmt.Fprint(l, line(written))
	}
	room := written - 10
	if want := waitingLines/length + 1; room != want {
		t.Errorf("%d lines of %d bytes found room, want %d", room, length, want)
	}
	for l.State().Stalled == 0 { // the first line is on its way
		time.Sleep(time.Millisecond)
	}
	l.mu.Lock()
	l.began = l.began.Add(-time.Minute)
	l.mu.Unlock()
	if s := l.State(); s.Stalled < 60 || s.Waiting != room || !strings.Contains(trouble(s), fmt.Sprintf("%d lines wait, and 10 are lost", room)) {
		t.Errorf("status %+v: %s", s, trouble(s))
	}
	close(r.goes)
	for l.State().Waiting > 0 {
		time.Sleep(time.Millisecond)
	}
	fmt.Fprint(l, line(written))
	l.Close()
	var want strings.Builder
	for i := range room {
		want.WriteString(line(i))
	}
	got := r.read()
	after, ok := strings.CutPrefix(got, want.String())
	if !ok || !strings.Contains(after, "lines=10\n") || !strings.HasSuffix(after, "lines=10\n"+line(written)) {
		t.Errorf("the log has %d bytes, then %q", len(got)-len(after), after)
	}
	if s := l.State(); trouble(s) != "" || s.Lost != 10 {
		t.Errorf("status %+v: %s", s, trouble(s))
	}
}

// TestLinesThatCannotBeWritten: a full disk costs lines and nothing else, and the first line that is written
// after it begins a line, behind the number of those lost.
func TestLinesThatCannotBeWritten(t *testing.T) {
	full := true
	r := &reader{goes: make(chan struct{})}
	r.fail = func(line string) (int, error) {
		if full {
			return min(2, len(line)), unix.ENOSPC
		}
		return len(line), nil
	}
	close(r.goes)
	l := newLines(r)
	settled := func(holds func(api.LogStatus) bool) {
		t.Helper()
		for late := time.Now().Add(patience); !holds(l.State()); time.Sleep(time.Millisecond) {
			if time.Now().After(late) {
				t.Fatalf("status %+v", l.State())
			}
		}
	}
	for i := range 3 {
		fmt.Fprintf(l, "lost %d\n", i)
		settled(func(s api.LogStatus) bool { return s.Lost == uint64(i)+1 })
	}
	if want := "the log cannot be written (no space left on device): 3 lines are lost"; trouble(l.State()) != want {
		t.Errorf("%q, want %q", trouble(l.State()), want)
	}
	r.mu.Lock()
	full = false
	r.mu.Unlock()
	fmt.Fprint(l, "kept\n")
	l.Close()
	lines := strings.Split(r.read(), "\n")
	if n := len(lines); n < 3 || lines[n-2] != "kept" || !strings.HasSuffix(lines[n-3], "lines=3") || !strings.HasPrefix(lines[n-3], "time=") {
		t.Errorf("the log has %q", lines)
	}
}

// TestLastLines: a daemon's end waits for its last lines, but not for a reader that stands still.
func TestLastLines(t *testing.T) {
	r := &reader{goes: make(chan struct{})}
	l := newLines(r)
	fmt.Fprint(l, "the last\n")
	ended := make(chan bool)
	go func() {
		l.Close()
		close(ended)
	}()
	r.goes <- struct{}{}
	<-ended
	if r.read() != "the last\n" {
		t.Errorf("the log has %q", r.read())
	}
	stuck := &reader{goes: make(chan struct{})}
	defer close(stuck.goes)
	l = NewLines(stuck)
	fmt.Fprint(l, "never read\n")
	l.Close()
	fmt.Fprint(l, "after the end\n")
	if s := l.State(); s.Lost != 1 || s.Waiting != 1 {
		t.Errorf("after the end: %+v", s)
	}
}

// TestLogInStatus: a log that is not read, or not written, is a problem in the status of every daemon.
func TestLogInStatus(t *testing.T) {
	for _, d := range daemons {
		m := newMachine(t, d.file)
		m.logged = api.LogStatus{Lost: 7, Error: "broken pipe"}
		p := m.running(d.run)
		s := m.status()
		if want := "the log cannot be written (broken pipe): 7 lines are lost"; s.Log == nil || s.Log.Lost != 7 || len(s.Problems) != 1 || s.Problems[0] != want {
			t.Errorf("status has %+v, %q", s.Log, s.Problems)
		}
		p.end()
	}
}
