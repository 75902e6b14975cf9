package main

import (
	"strings"
	"testing"
	"time"
)

func TestProgressOfLogIsRareAndEnds(t *testing.T) {
	var b strings.Builder
	p := newProgress(&b)
	p.every = time.Hour
	for _, line := range []string{"first", "second", "third"} {
		p.update(line, false)
	}
	p.update("last", true)
	p.update("last", true) // a run may report its end twice
	p.end()
	if got := b.String(); got != "first\nlast\n" {
		t.Errorf("got %q", got)
	}
}

func TestProgressAtTerminalRenewsItsLine(t *testing.T) {
	var b strings.Builder
	p := newProgress(&b)
	p.live, p.every = true, 0
	p.update("long line", false)
	p.update("short", true)
	p.end()
	if got := b.String(); got != "\rlong line\rshort    \n" {
		t.Errorf("got %q", got)
	}
}
