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
	fail error

	rate  int       // of offers of each service, a second
	began time.Time // the offers
	asked map[int]time.Time
}

// of is the last report of a service.
func (r *reporter) of(service int) uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[service]
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

// Asked makes up offers at a steady rate.
func (r *reporter) Asked(service int) (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rate == 0 {
		return 0, nil
	}
	last, ok := r.asked[service]
	if !ok {
		last = r.began
	}
	offers := time.Since(last) * time.Duration(r.rate) / time.Second
	r.asked[service] = last.Add(offers * time.Second / time.Duration(r.rate))
	return uint32(offers), nil
}

func (r *reporter) offers(rate int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rate, r.began = rate, time.Now()
	clear(r.asked)
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
	log *lockedText
	end func()
}

// lockedText is a log that a test reads and empties while it is written.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take is what was written since the last call.
func (l *lockedText) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

func startReports(t *testing.T, of map[int]*counting) *reporting {
	t.Helper()
	r := &reporting{to: &reporter{last: map[int]uint32{}, rate: 10_000, began: time.Now(), asked: map[int]time.Time{}}, log: &lockedText{}}
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
		if r.end(); len(r.to.last) != 2 || r.to.of(0) != 100 || r.to.last[3] != 1100 {
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
		if r.to.of(1) != 10 {
			t.Errorf("after the first source came: %v", r.to.last)
		}
		change(nil)
		change(map[int]*counting{2: second})
		if first.busy > 11 || r.to.of(1) != 10 || r.to.of(2) != 10 {
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

// TestReportsByNeed: a source is looked at about once an offer, at most at its own pace and at
// least at a tenth of it, as long as offers come and a second longer; then seldom, but often
// enough not to be stale, and with the next offers as before.
func TestReportsByNeed(t *testing.T) {
	const ms = time.Millisecond
	for every, paces := range map[time.Duration]map[int]time.Duration{
		1 * ms:  {10_000: ms, 1000: ms, 200: 5 * ms, 20: 10 * ms, 2: 10 * ms, 0: 100 * ms},
		50 * ms: {10_000: 50 * ms, 5: 200 * ms, 2: 400 * ms, 0: 400 * ms},
	} {
		for rate, pace := range paces {
			synctest.Test(t, func(t *testing.T) {
				source := &counting{every: every}
				r := startReports(t, map[int]*counting{0: source})
				for _, now := range []int{rate, 0, rate} {
					r.to.offers(now)
					want := pace
					if now == 0 {
						want = min(100*every, seldomest)
					}
					pass(2 * time.Second)
					source.read()
					pass(20 * time.Second)
					got := 20 * time.Second / time.Duration(max(source.read(), 1))
					if got < want*9/10 || got > want*11/10 {
						t.Errorf("every %v, %d offers a second: every %v, want %v", every, now, got, want)
					}
				}
				r.end()
			})
		}
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
			for line := range strings.Lines(r.log.take()) {
				_, text, _ := strings.Cut(line, "level=")
				got = append(got, strings.TrimSpace(text))
			}
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
		last := r.to.of(0)
		if word, _ := r.Of(0); word.Trouble != "no answer" {
			t.Errorf("a word in trouble: %+v", word)
		}
		pass(time.Second)
		if r.to.of(0) != last {
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
