package loadpage

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// wantWord: the page has a busy count now.
func wantWord(t *testing.T, label string, page *os.File, want uint32) {
	t.Helper()
	if busy, _, err := Word(page); err != nil || busy != want {
		t.Errorf("%s: busy %d, %v; want %d", label, busy, err, want)
	}
}

// TestCounter: the page has each change when Add and Done return, that of requests before there was a
// page and between two of them, and whichever tasks count.
func TestCounter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.sock")
	var c Counter
	c.Add() // before there is an agent
	ctx, cancel := context.WithCancel(t.Context())
	reported := make(chan error, 1)
	go func() { reported <- c.Report(ctx, path) }()
	first, page := hand(t, path)
	eventually(t, "a request from before", page, 1)
	for n := range uint32(1000) {
		c.Add()
		wantWord(t, "one more", page, n+2)
	}
	for n := range uint32(1000) {
		c.Done()
		wantWord(t, "one less", page, 1000-n)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c.Add()
	second, next := hand(t, path)
	eventually(t, "the second page", next, 2)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 1000 {
				c.Add()
				c.Done()
			}
		})
	}
	group.Wait()
	wantWord(t, "many tasks", next, 2)
	cancel()
	if err := <-reported; err != nil {
		t.Error(err)
	}
	c.Done() // after the report
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// TestCounterKeepsTime: the page is written though no request begins or ends.
func TestCounterKeepsTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.sock")
	h, page := hand(t, path)
	defer h.Close()
	var c Counter
	go c.Report(t.Context(), path)
	eventually(t, "no request", page, 0)
	_, before, err := Word(page)
	if err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, now, err := Word(page); err != nil || now > before {
			break
		}
		if time.Now().After(late) {
			t.Fatal("the page is not written any more")
		}
	}
}

// TestCounterUnderflow: a program that answers more than it was asked learns of it.
func TestCounterUnderflow(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a count below 0")
		}
	}()
	new(Counter).Done()
}
