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
		if err := Reports(ctx, bubble{}, map[int]Page{0: &counting{}, 3: &counting{busy: 1000}}, r); err != nil {
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
		if err := Reports(t.Context(), bubble{}, map[int]Page{0: &counting{}}, r); !errors.Is(err, r.fail) {
			t.Fatal(err)
		}
	})
}
