package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStatusOfNone: one line for both default sockets, with the remedy.
func TestStatusOfNone(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "lb.sock"), filepath.Join(dir, "agent.sock")}
	_, err := ask(t.Context(), "", paths)
	want := "no daemon answers at " + paths[0] + " or " + paths[1] + ": is a daemon running? Give the `control` path of its configuration with --control"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// TestStatusOfStale: of a daemon that was killed its socket is named, and not the
// one that never was.
func TestStatusOfStale(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "lb.sock"), filepath.Join(dir, "agent.sock")}
	l, err := net.Listen("unix", paths[1])
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := os.Lstat(paths[1]); err != nil {
		t.Fatal(err)
	}
	_, err = ask(t.Context(), "", paths)
	if err == nil || !strings.HasPrefix(err.Error(), "no daemon answers at "+paths[1]+": ") || strings.Contains(err.Error(), paths[0]) {
		t.Errorf("got %v", err)
	}
}
