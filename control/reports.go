package control

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/loadsource"
)

// Source is an application's own word about its load.
type Source interface {
	Read(ctx context.Context, now time.Duration) (loadsource.Reading, error)
	Every() time.Duration
}

// Reporter takes the readings, by the number of their service.
type Reporter interface {
	Report(service int, busy uint32, written time.Duration) error
	// Asked counts the offers that met the report of a service since the last call.
	Asked(service int) (offers uint32, err error)
}

const (
	needed      = time.Second            // after an offer, a source is looked at
	seldom      = 10                     // at least at a tenth of its own pace,
	unneeded    = 100                    // and later at a hundredth,
	seldomest   = 400 * time.Millisecond // but always before its word is stale
	leisure     = 20                     // reading takes one part of so many of the time
	afterError  = 50 * time.Millisecond
	warnedAgain = time.Minute
)

// Named is a source under the name of its service.
type Named struct {
	Source
	Service, Load string
}

// Reports copies the words of applications into a data plane.
type Reports struct {
	clock Clock
	log   *slog.Logger
	to    Reporter

	mu      sync.Mutex
	of      map[int]*watch
	changed chan struct{} // there are other sources
}

// NewReports makes them, of the sources of a plane's services, by the number of the service.
func NewReports(of map[int]Named, clock Clock, log *slog.Logger) *Reports {
	return &Reports{clock: clock, log: log, of: watches(of, clock.Now()), changed: make(chan struct{}, 1)}
}

func watches(of map[int]Named, now time.Duration) map[int]*watch {
	all := map[int]*watch{}
	for service, source := range of {
		all[service] = &watch{Named: source, service: service, good: now, asked: now, looked: now, period: source.Every()}
	}
	return all
}

// Word is the last word of an application.
type Word struct {
	loadsource.Reading
	Trouble string // why it is no load now; empty: it is
}

// Of is the word about a service, if it is asked for.
func (r *Reports) Of(service int) (Word, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, ok := r.of[service]
	if !ok {
		return Word{}, false
	}
	return w.word, true
}

// Change goes over to other sources. Nothing is copied while the services get other numbers in
// renumber; if it fails, the sources stay.
func (r *Reports) Change(to map[int]Named, renumber func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := renumber(); err != nil {
		return err
	}
	for _, w := range r.of {
		w.over = true
	}
	r.of = watches(to, r.clock.Now())
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return nil
}

// Run reads each source at its own pace and copies its word, so that an offer meets a fresh word,
// until ctx ends. Without sources it waits for some.
func (r *Reports) Run(ctx context.Context, to Reporter) error {
	r.to = to
	for ctx.Err() == nil {
		if err := r.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// run works until the sources change.
func (r *Reports) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	r.mu.Lock()
	for _, w := range r.of {
		group.Go(func() error { return r.watch(ctx, w) })
	}
	r.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-r.changed:
	}
	cancel()
	return group.Wait()
}

// watch copies the word of a source.
func (r *Reports) watch(ctx context.Context, w *watch) error {
	pace := w.Every()
	ticks, stop := r.clock.Tick(pace)
	defer func() { stop() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
		next, err := r.look(ctx, w)
		if err != nil {
			return err
		}
		if next != pace {
			stop()
			pace = next
			ticks, stop = r.clock.Tick(pace)
		}
	}
}

// look reads a source, copies its word and returns when to look again.
func (r *Reports) look(ctx context.Context, w *watch) (time.Duration, error) {
	began := r.clock.Now()
	reading, failed := w.Read(ctx, began)
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.over || ctx.Err() != nil {
		return w.Every(), nil
	}
	if failed == nil {
		if err := r.to.Report(w.service, reading.Busy, reading.Written); err != nil {
			return 0, err
		}
	}
	offers, err := r.to.Asked(w.service)
	w.note(reading, failed, now, r.log)
	return w.pace(offers, began, now, failed), err
}
