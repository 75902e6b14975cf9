package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"proffer/loadsource"
)

// counting is a source that reports one more each time.
type counting struct {
	every time.Duration
	takes time.Duration

	mu   sync.Mutex
	busy uint32
	fail error
}

func (w *counting) Every() time.Duration { return w.every }

func (w *counting) Read(_ context.Context, now time.Duration) (loadsource.Reading, error) {
	time.Sleep(w.takes)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy++
	return loadsource.Reading{Busy: w.busy, Written: time.Duration(w.busy) * time.Second}, w.fail
}

// read is how often the source was read since the last call.
func (w *counting) read() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.busy
	w.busy = 0
	return n
}

func (w *counting) fails(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = err
}

// reporter keeps the last report of each service.
type reporter struct {
	mu   sync.Mutex
	last map[int]uint32
	met  bool // by offers
	fail error
}

func (r *reporter) Report(service int, busy uint32, written time.Duration) error {
	if written != time.Duration(busy)*time.Second {
		return errors.New("half a report")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[service] = busy
	return r.fail
}

func (r *reporter) Asked(int) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.met, nil
}

func (r *reporter) meet(met bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.met = met
}

func page(busy uint32) *counting { return &counting{every: time.Millisecond, busy: busy} }

func named(of map[int]*counting) map[int]Named {
	sources := map[int]Named{}
	for service, source := range of {
		sources[service] = Named{source, fmt.Sprint("s", service), "page"}
	}
	return sources
}

// reporting runs reports of sources in a bubble of time.
type reporting struct {
	*Reports
	to  *reporter
	log *strings.Builder
	end func()
}

func startReports(t *testing.T, of map[int]*counting) *reporting {
	t.Helper()
	r := &reporting{to: &reporter{last: map[int]uint32{}, met: true}, log: &strings.Builder{}}
	r.Reports = NewReports(named(of), bubble{}, slog.New(slog.NewTextHandler(r.log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, r.to) }()
	r.end = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return r
}

// pass lets time pass, and a hair more.
func pass(d time.Duration) {
	time.Sleep(d + time.Microsecond)
	synctest.Wait()
}

func TestReportsCopyEveryWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReports(t, map[int]*counting{0: page(0), 3: page(1000)})
		pass(100 * time.Millisecond)
		if r.end(); len(r.to.last) != 2 || r.to.last[0] != 100 || r.to.last[3] != 1100 {
			t.Fatalf("after 100 ms the reports are %v, want 0:100 3:1100", r.to.last)
		}
	})
}

// TestReportsFail: an agent that cannot see its load any more ends.
func TestReportsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &reporter{last: map[int]uint32{}, fail: errors.New("map gone")}
		r := NewReports(named(map[int]*counting{0: page(0)}), bubble{}, slog.New(slog.DiscardHandler))
		if err := r.Run(t.Context(), to); !errors.Is(err, to.fail) {
			t.Fatal(err)
		}
	})
}

// TestReportsOfOtherSources: the sources change while they are copied; without any the copying
// pauses, and it goes on with the next.
func TestReportsOfOtherSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReports(t, nil)
		change := func(to map[int]*counting) {
			if err := r.Change(named(to), func() error { return nil }); err != nil {
				t.Fatal(err)
			}
			pass(10 * time.Millisecond)
		}
		first, second := page(0), page(0)
		change(map[int]*counting{1: first})
		if r.to.last[1] != 10 {
			t.Errorf("after the first source came: %v", r.to.last)
		}
		change(nil)
		change(map[int]*counting{2: second})
		if first.busy > 11 || r.to.last[1] != 10 || r.to.last[2] != 10 {
			t.Errorf("after the second: %v, the first was read %d times", r.to.last, first.busy)
		}
		refused := errors.New("refused")
		if err := r.Change(nil, func() error { return refused }); !errors.Is(err, refused) {
			t.Errorf("a change that fails: %v", err)
		}
		if _, kept := r.Of(2); !kept {
			t.Error("a change that failed took the sources")
		}
		r.end()
	})
}

// TestNoWordAfterAChange: a source that is slow to answer reports nothing under a number that is
// another service's by then.
func TestNoWordAfterAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &counting{every: 10 * time.Millisecond, takes: 20 * time.Millisecond}
		r := startReports(t, map[int]*counting{0: slow})
		pass(15 * time.Millisecond) // it is being read
		if err := r.Change(nil, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if r.end(); len(r.to.last) != 0 {
			t.Errorf("reports of a source that is over: %v", r.to.last)
		}
	})
}

// TestReportsByNeed: a source is read at its own pace while offers meet it and a second longer,
// then seldom, but often enough not to be stale, and at its own pace again from the next offer.
func TestReportsByNeed(t *testing.T) {
	for every, seldom := range map[time.Duration]time.Duration{
		time.Millisecond: 100 * time.Millisecond, 50 * time.Millisecond: 400 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			source := &counting{every: every}
			r := startReports(t, map[int]*counting{0: source})
			defer r.end()
			reads := func(during, pace time.Duration) {
				t.Helper()
				source.read()
				pass(during)
				if got, want := source.read(), uint32(during/pace); got != want {
					t.Errorf("every %v: read %d times in %v, want %d", every, got, during, want)
				}
			}
			reads(4*time.Second, every)
			r.to.meet(false)
			reads(time.Second, every)
			pass(seldom)
			reads(4*time.Second, seldom)
			r.to.meet(true)
			pass(seldom)
			reads(time.Second, every)
		})
	}
}

// TestSlowSourceRests: reading takes a twentieth of the time, unless the word would be stale.
func TestSlowSourceRests(t *testing.T) {
	for takes, pace := range map[time.Duration]time.Duration{10 * time.Millisecond: 200 * time.Millisecond, 250 * time.Millisecond: 400 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			source := &counting{every: 50 * time.Millisecond, takes: takes}
			r := startReports(t, map[int]*counting{0: source})
			pass(time.Second)
			source.read()
			pass(20 * pace)
			if n := source.read(); n < 19 || n > 21 {
				t.Errorf("a source that takes %v was read %d times in %v", takes, n, 20*pace)
			}
			r.end()
		})
	}
}

// TestTroubleIsLoggedOnce: a source without a word is named in the log once, when its last word is
// stale, and again when there is one; a source that comes and goes, once a minute.
func TestTroubleIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := page(0)
		r := startReports(t, map[int]*counting{0: source})
		logs := func(want string) {
			t.Helper()
			var got []string
			for line := range strings.Lines(r.log.String()) {
				_, text, _ := strings.Cut(line, "level=")
				got = append(got, strings.TrimSpace(text))
			}
			r.log.Reset()
			if strings.Join(got, "\n") != want {
				t.Errorf("the log has %q, want %q", got, want)
			}
		}
		const gone = `WARN msg="the load is not known: offers are passed on" service=s0 load=page error="no answer"`
		const back = `INFO msg="the load is known again" service=s0 load=page`
		pass(time.Second)
		if word, _ := r.Of(0); word.Trouble != "" || word.Busy == 0 {
			t.Errorf("a good word: %+v", word)
		}
		source.fails(errors.New("no answer"))
		pass(900 * time.Millisecond)
		source.fails(nil)
		pass(time.Second)
		logs("")
		source.fails(errors.New("no answer"))
		pass(10 * time.Second)
		logs(gone)
		last := r.to.last[0]
		if word, _ := r.Of(0); word.Trouble != "no answer" {
			t.Errorf("a word in trouble: %+v", word)
		}
		pass(time.Second)
		if r.to.last[0] != last {
			t.Error("a word in trouble was reported")
		}
		for range 3 {
			source.fails(nil)
			pass(time.Second)
			source.fails(errors.New("no answer"))
			pass(10 * time.Second)
		}
		logs(back)
		pass(30 * time.Second)
		logs(gone)
		pass(10 * time.Minute)
		logs("")
		r.end()
	})
}
