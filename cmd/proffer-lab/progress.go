package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// progress shows one line that renews itself at a terminal, and now and then a
// line elsewhere.
type progress struct {
	w     io.Writer
	live  bool
	last  time.Time
	every time.Duration
	shown string
	wide  int
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, every: 5 * time.Second}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.live, p.every = true, 100*time.Millisecond
	}
	return p
}

// update shows the line unless it stands there or the one before is too fresh; the
// last line always.
func (p *progress) update(line string, last bool) {
	if line == p.shown || time.Since(p.last) < p.every && !last {
		return
	}
	p.last, p.shown = time.Now(), line
	if !p.live {
		fmt.Fprintln(p.w, line)
		return
	}
	fmt.Fprintf(p.w, "\r%-*s", p.wide, line)
	p.wide = len(line)
}

// end leaves the line.
func (p *progress) end() {
	if p.live && p.wide > 0 {
		fmt.Fprintln(p.w)
	}
}
