package daemon

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"proffer/api"
)

// Bounds of a log that is not read.
const (
	waitingLines = 64 << 10    // bytes that wait for the reader; a line longer than the rest of them still finds room
	readsWithin  = time.Second // a reader that takes longer for a line stands still
	lastLines    = time.Second // the end of a daemon waits so long for its last lines
)

// Lines carries the lines of a daemon's log to their reader through a bounded queue, so that
// neither a reader that stands still or ends nor a full disk stops a part of the daemon. A line
// without room, or that cannot be written, is lost and counted; the log has the number when it
// moves again.
type Lines struct {
	out  io.Writer
	wake chan struct{} // there may be work
	over chan struct{} // closed after the last line
	last time.Duration // that Close waits

	mu     sync.Mutex
	waits  []carried // the first of them is being written, perhaps
	bytes  int       // of waits
	gap    uint64    // lines lost behind the last of waits
	lost   uint64    // since the start
	began  time.Time // the write in progress; zero: none is
	broken error     // of the last write
	closed bool
}

// carried is a line, and the number of lines that were lost before it.
type carried struct {
	text []byte
	gap  uint64
}

// NewLines begins to carry lines to out.
func NewLines(out io.Writer) *Lines {
	l := &Lines{out: out, wake: make(chan struct{}, 1), over: make(chan struct{}), last: lastLines}
	go l.carry()
	return l
}

// Write takes a line and returns at once.
func (l *Lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.bytes >= waitingLines {
		l.gap++
		l.lost++
		return len(line), nil
	}
	l.waits = append(l.waits, carried{bytes.Clone(line), l.gap})
	l.bytes += len(line)
	l.gap = 0
	l.awake()
	return len(line), nil
}

func (l *Lines) awake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Close takes no more lines, and returns when all are written, or after a second.
func (l *Lines) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.awake()
	select {
	case <-l.over:
	case <-time.After(l.last):
	}
}

// carry writes lines until the last line after Close.
func (l *Lines) carry() {
	defer close(l.over)
	var missing uint64 // lines that were lost, without a word in the log
	torn := false      // the log ends within a line
	for {
		e, some := l.next()
		if !some {
			return
		}
		if missing += e.gap; missing > 0 {
			if l.put(&torn, notice(missing)) == nil {
				missing = 0
			}
		}
		if e.text != nil {
			err := l.put(&torn, e.text)
			if err != nil {
				missing++
			}
			l.drop(err != nil)
		}
	}
}

// drop gives the first line's room back, after it was written or lost.
func (l *Lines) drop(lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes -= len(l.waits[0].text)
	l.waits = l.waits[1:]
	if lost {
		l.lost++
	}
}

// next waits for a line, which keeps its room, or for the end of a time in which lines were lost. some is false
// after Close, when none is left.
func (l *Lines) next() (e carried, some bool) {
	for {
		l.mu.Lock()
		switch {
		case len(l.waits) > 0:
			e, some = l.waits[0], true
		case l.gap > 0:
			e.gap, l.gap = l.gap, 0
			some = true
		}
		closed := l.closed
		l.mu.Unlock()
		if some || closed {
			return e, some
		}
		<-l.wake
	}
}

// put writes a line, after the end of a torn line.
func (l *Lines) put(torn *bool, line []byte) error {
	if *torn {
		line = append([]byte{'\n'}, line...)
	}
	l.mu.Lock()
	l.began = time.Now()
	l.mu.Unlock()
	n, err := l.out.Write(line)
	if n > 0 {
		*torn = n < len(line)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.broken = time.Time{}, err
	return err
}

// notice is a line of the log about lines that it lacks.
func notice(lost uint64) []byte {
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Warn("lines of this log were lost here: its reader stood still, or it could not be written", "lines", lost)
	return b.Bytes()
}

// State is how the log gets on.
func (l *Lines) State() api.LogStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := api.LogStatus{Lost: l.lost, Waiting: len(l.waits)}
	if !l.began.IsZero() {
		s.Stalled = time.Since(l.began).Seconds()
	}
	if l.broken != nil {
		s.Error = l.broken.Error()
	}
	return s
}

// trouble is the state of a log in words; empty: all is well.
func trouble(s api.LogStatus) string {
	switch {
	case s.Stalled > readsWithin.Seconds():
		return fmt.Sprintf("the log's reader has taken no line for %.0f s: %d lines wait, and %d are lost", s.Stalled, s.Waiting, s.Lost)
	case s.Error != "":
		return fmt.Sprintf("the log cannot be written (%s): %d lines are lost", s.Error, s.Lost)
	}
	return ""
}
