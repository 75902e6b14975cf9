// Package loadsource reads an application's own word about its load: the requests that it has
// in progress, by the means that the application has for it.
//
// A source is a file of its own: a function that opens it and a method that reads it; its name
// and keys are a row of topo. All that a source reads may be hostile: an answer is
// bounded in time and length, a number is checked before any arithmetic, and a number that cannot be
// is an error.
package loadsource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"proffer/topo"
)

// Reading is the word of an application.
type Reading struct {
	Busy    uint32        // requests in progress
	Workers uint32        // that the application has for them; 0: not known
	Written time.Duration // CLOCK_MONOTONIC, when it was true; 0: never
}

// Source is an application that can be asked.
type Source interface {
	// Read asks at an instant of CLOCK_MONOTONIC.
	Read(ctx context.Context, now time.Duration) (Reading, error)
	// Every is how often it may be asked.
	Every() time.Duration
	Close() error
}

const (
	// Within is how long an answer may take.
	Within = 250 * time.Millisecond
	// Stale is the age of a word that is no load any more.
	Stale time.Duration = topo.StaleNs
	// MostBusy bounds a load.
	MostBusy = topo.MostBusy

	longestAnswer = 4 << 20
)

// The pace of sources: that of memory, of the scoreboard, which is larger, and of a request. The data
// plane reads a page that it handed over itself; the daemon watches it for the log.
const (
	everyHanded     = time.Second
	everyPage       = time.Millisecond
	everyScoreboard = 10 * time.Millisecond
	everyRequest    = 50 * time.Millisecond
)

var sources = [...]func(*topo.Offering) (Source, error){
	topo.PageSource: openPage,
	topo.Apache:     openApache,
	topo.PHPFPM:     openPHPFPM,
	topo.Nginx:      openNginx,
	topo.HAProxy:    openHAProxy,
	topo.Envoy:      openEnvoy,
	topo.Prometheus: openPrometheus,
}

// Open opens the source of a service with the measure `page`. The application need not be there
// yet, and may do as it likes: a reading costs its own load at the most (apart.go).
func Open(o *topo.Offering) (Source, error) {
	s, err := sources[o.Source](o)
	if _, is := s.(apartly); is || err != nil {
		return s, err
	}
	return newApart(s), nil
}

// apartly is a source that is read apart already.
type apartly interface{ begin(func() error) }

// answered is a source that answers requests with a text.
type answered struct {
	ask     func(context.Context) ([]byte, error)
	parse   func([]byte) (Reading, error)
	release func()
}

func (a answered) Every() time.Duration { return everyRequest }

func (a answered) Read(ctx context.Context, now time.Duration) (Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, Within)
	defer cancel()
	answer, err := a.ask(ctx)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
			err = errLate
		}
		return Reading{}, err
	}
	r, err := a.parse(answer)
	r.Written = now
	return r, err
}

func (a answered) Close() error {
	if a.release != nil {
		a.release()
	}
	return nil
}

// count is a number of requests or workers.
func count(n float64) (uint32, error) {
	if !(n >= 0 && n <= MostBusy) { // not a number, too
		return 0, fmt.Errorf("%.0f requests in progress cannot be", n)
	}
	return uint32(n), nil
}

var errLate = fmt.Errorf("no answer within %v", Within)

var errLong = fmt.Errorf("the answer is longer than %d MiB", longestAnswer>>20)

var errNoCount = errors.New("the answer has no count of requests")
