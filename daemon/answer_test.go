package daemon

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNoRoomForTheSocket: a daemon starts on a disk that is read-only, and answers as soon as it can make its
// control socket.
func TestNoRoomForTheSocket(t *testing.T) {
	for _, d := range daemons {
		m := newMachine(t, d.file)
		dir := filepath.Join(filepath.Dir(m.file), "run")
		m.change(m.socket, filepath.Join(dir, "node.sock"))
		m.socket = filepath.Join(dir, "node.sock")
		again := readOnly(t, dir)
		p := m.start(d.run)
		m.logs("no status until the control socket can be made")
		m.logs("msg=ready")
		m.clock.tick(t, answerEvery)
		again()
		for made := false; !made; { // by the try that the tick before caused, or by the next one
			select {
			case line := <-m.lines:
				made = strings.Contains(line, "the control socket is made")
			case m.clock.of(answerEvery) <- time.Time{}:
			case <-time.After(patience):
				t.Fatal("no control socket is made")
			}
		}
		m.status()
		p.end()
	}
	m := newMachine(t, lbFile)
	dir := filepath.Dir(m.socket)
	readOnly(t, dir)
	if _, err := m.host().listen("/proc/self/new/node.sock"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a wrong path: %v", err)
	}
}
