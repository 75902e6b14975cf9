package control

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// counting is a page that reports one more each time.
type counting struct {
	mu   sync.Mutex
	busy uint32
}

func (w *counting) Read() (uint32, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy++
	return w.busy, time.Duration(w.busy) * time.Second
}

// reporter keeps the last report of each service.
type reporter struct {
	last map[int]uint32
	fail error
}

func (r *reporter) Report(service int, busy uint32, written time.Duration) error {
	if written != time.Duration(busy)*time.Second {
		return errors.New("half a report")
	}
	r.last[service] = busy
	return r.fail
}

func TestReportsCopyEveryPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reporter{last: map[int]uint32{}}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond+time.Microsecond)
		defer cancel()
		if err := Reports(ctx, bubble{}, NewPages(map[int]Page{0: &counting{}, 3: &counting{busy: 1000}}), r); err != nil {
			t.Fatal(err)
		}
		if len(r.last) != 2 || r.last[0] != 100 || r.last[3] != 1100 {
			t.Fatalf("after 100 ms the reports are %v, want 0:100 3:1100", r.last)
		}
	})
}

// TestReportsFail: an agent that cannot see its load any more ends.
func TestReportsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reporter{last: map[int]uint32{}, fail: errors.New("map gone")}
		if err := Reports(t.Context(), bubble{}, NewPages(map[int]Page{0: &counting{}}), r); !errors.Is(err, r.fail) {
			t.Fatal(err)
		}
	})
}

// TestReportsOfOtherPages: the pages change while they are copied; without any the copying
// pauses, and it goes on with the next.
func TestReportsOfOtherPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reporter{last: map[int]uint32{}}
		ctx, cancel := context.WithCancel(t.Context())
		pages := NewPages(nil)
		done := make(chan error, 1)
		go func() { done <- Reports(ctx, bubble{}, pages, r) }()
		change := func(to map[int]Page) {
			if err := pages.Change(to, func() error { return nil }); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10*reportEvery + reportEvery/2)
			synctest.Wait()
		}
		first, second := &counting{}, &counting{}
		change(map[int]Page{1: first})
		if r.last[1] != 10 {
			t.Errorf("after the first page came: %v", r.last)
		}
		change(nil)
		change(map[int]Page{2: second})
		if first.busy != 10 || r.last[2] != 10 {
			t.Errorf("after the second: %v, the first was read %d times", r.last, first.busy)
		}
		refused := errors.New("refused")
		if err := pages.Change(nil, func() error { return refused }); !errors.Is(err, refused) {
			t.Errorf("a change that fails: %v", err)
		}
		if _, kept := pages.Of(2); !kept {
			t.Error("a change that failed took the pages")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
