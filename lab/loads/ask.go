package loads

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/lab/application"
	"proffer/lab/farmrun"
)

const (
	thinks   = 20 * time.Millisecond // a client between two requests, on average
	burns    = 8 * time.Millisecond  // a request's CPU time, on average
	waits    = 30 * time.Millisecond // a request's waiting, on average
	shortest = time.Millisecond
	longest  = 10 // times the average

	togetherOpening = 32 // connections that are opened at a time
)

// inProgress has the time at which the request of each client began, or 0.
type inProgress []atomic.Int64

// truth is the number of requests, and the time at which the oldest began.
func (p inProgress) truth() (n int, oldest int64) {
	for i := range p {
		if began := p[i].Load(); began != 0 {
			n++
			if oldest == 0 || began < oldest {
				oldest = began
			}
		}
	}
	return n, oldest
}

// random is an exponential time around an average.
func random(rng *rand.Rand, average time.Duration) time.Duration {
	return min(max(time.Duration(rng.ExpFloat64()*float64(average)), shortest), longest*average)
}

// request draws one of a kind.
func request(rng *rand.Rand, kind application.Kind) application.Request {
	if kind == application.CPU || kind == application.Mixed && rng.IntN(2) == 0 {
		return application.Request{CPU: random(rng, burns)}
	}
	return application.Request{Wait: random(rng, waits)}
}

// idle reads the signals while connections are open that had an answer each, or wait for work as
// the program's clients do.
func (t *trialOf) idle(ctx context.Context, conns []application.Conn) (means []float64, err error) {
	for i, c := range conns {
		if rests, ok := c.(interface{ Rest(int) error }); ok {
			if err := rests.Rest(i); err != nil {
				return nil, err
			}
		}
	}
	if err := farmrun.Sleep(ctx, t.settle()); err != nil {
		return nil, err
	}
	sampling := t.sample(nil)
	err = farmrun.Sleep(ctx, t.settle())
	samples, failed := sampling()
	return meansOf(samples), errors.Join(err, failed)
}

// open opens connections, some at a time, each of which has had an answer.
func (t *trialOf) open(ctx context.Context, n int) ([]application.Conn, error) {
	conns := make([]application.Conn, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(togetherOpening)
	for i := range conns {
		group.Go(func() (err error) {
			if conns[i], err = t.program.Dial(ctx, t.site); err != nil {
				return err
			}
			return conns[i].Ask(ctx, application.Request{})
		})
	}
	return conns, group.Wait()
}

func closeAll(conns []application.Conn) error {
	var errs []error
	for _, c := range conns {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// ask goes through the levels of load with one kind of requests, and returns the samples.
func (t *trialOf) ask(ctx context.Context, kind application.Kind) (samples []sampled, err error) {
	most := levels[len(levels)-1]
	share := max(1, t.program.Share)
	conns, err := t.open(ctx, (most+share-1)/share)
	defer func() { err = errors.Join(err, closeAll(conns)) }()
	if err != nil {
		return nil, err
	}
	progress := make(inProgress, most)
	sampling := t.sample(progress)
	for level, clients := range levels {
		var group errgroup.Group
		until := time.Now().Add(t.each())
		for i := range clients {
			rng := rand.New(rand.NewPCG(t.Seed, uint64(level*most+i)))
			c := client{conn: conns[i/share], began: &progress[i], kind: kind, rng: rng}
			group.Go(func() error { return c.ask(ctx, until) })
		}
		if err = group.Wait(); err != nil {
			break
		}
	}
	samples, failed := sampling()
	return samples, errors.Join(err, failed)
}

// client asks one request after the other.
type client struct {
	conn  application.Conn
	began *atomic.Int64
	kind  application.Kind
	rng   *rand.Rand
}

func (c *client) ask(ctx context.Context, until time.Time) error {
	for {
		if err := farmrun.Sleep(ctx, random(c.rng, thinks)); err != nil {
			return err
		}
		if time.Now().After(until) {
			return nil
		}
		r := request(c.rng, c.kind)
		c.began.Store(time.Now().UnixNano())
		err := c.conn.Ask(ctx, r)
		c.began.Store(0)
		if err != nil {
			return fmt.Errorf("a request of %v CPU time and %v waiting: %w", r.CPU, r.Wait, err)
		}
	}
}

// sampled is one sample: the requests in progress, whether one of them has been so for long, and
// the value of each signal.
type sampled struct {
	at    time.Duration
	truth float64
	long  bool
	read  []float64
}

// longInProgress is how long a request is in progress that no signal may miss.
const longInProgress = 5 * time.Millisecond

// sample takes samples until the returned function is called, which returns them.
func (t *trialOf) sample(progress inProgress) func() ([]sampled, error) {
	var samples []sampled
	var err error
	var group sync.WaitGroup
	stop := make(chan struct{})
	began := time.Now()
	group.Go(func() {
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
			var s sampled
			if s, err = t.take(progress); err != nil {
				return
			}
			s.at = time.Since(began)
			samples = append(samples, s)
		}
	})
	return func() ([]sampled, error) {
		close(stop)
		group.Wait()
		return samples, err
	}
}

// take takes one: the truth before and after the signals.
func (t *trialOf) take(progress inProgress) (s sampled, err error) {
	before, oldest := progress.truth()
	now := time.Now().UnixNano()
	if s.read, err = t.reader.read(); err != nil {
		return s, err
	}
	after, stillOldest := progress.truth()
	s.truth = float64(before+after) / 2
	s.long = oldest != 0 && oldest == stillOldest && now-oldest > int64(longInProgress)
	return s, nil
}
