// Package traffic has an open-loop client that sends each request when it is due and
// reports when it could not. The rows of a run are replayed exactly by Replay: the
// yardstick of how true the measured times are. Long flows (Flows), streams of which
// every byte is checked (Bulk) and Steady requests show whether connections survive
// failures (docs/failures.md).
//
// Folder responder has the far ends: an HTTP server whose service times are slept on
// virtual cores, echoes, and a server of streams (docs/design/testbed.md). Folder raw
// sends the frames that must not do harm.
package traffic

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"proffer/lab/traffic/responder"
)

// Request is a connection to make: when it is due, the service time that it asks for
// and the client's address. Without From the kernel chooses.
type Request struct {
	At, Service time.Duration
	From        netip.AddrPort
}

// Client sends requests when they are due, whatever became of the earlier ones
// (open loop), each on a connection of its own.
//
//	open      a locked thread in the client's namespace: sockets    open.go
//	dispatch  one goroutine: wait, SYN                              dispatch.go
//	exchange  one a request: SYN-ACK, request, answer, close        exchange.go
type Client struct {
	To       netip.AddrPort
	Timeout  time.Duration         // from the intended start; 0: 10 s
	Choose   func() netip.AddrPort // asked for the address of each request when it is due; nil: To
	Enter    func() error          // moves the calling thread, which ends with the run, to the client's namespace; nil: stay
	Quit     int                   // once so many have left, a run that can no longer keep its schedule ends; 0: never
	Progress func(done, total int) // called at most ten times a second, and at the end; nil: none
}

// Result holds a run's rows, in order of the requests.
type Result struct {
	Rows     []Row
	Schedule Schedule
}

const defaultTimeout = 10 * time.Second

// run is the state of one Client.Run. A row belongs to the dispatcher until the
// request is sent, then to its exchange, and to Run once all have ended.
type run struct {
	Client
	began    time.Time
	requests []Request
	rows     []Row
	complete []bool
	hopes    *hopes
	done     atomic.Int64
	inHand   sync.WaitGroup
}

// Run sends requests, which are in order of At, and returns when all that were sent have
// ended.
// When ctx is cancelled it returns at once with its error and the rows complete
// so far; when Enter fails, with that error.
func (c Client) Run(ctx context.Context, requests []Request) (Result, error) {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	r := &run{
		Client:   c,
		requests: requests,
		rows:     make([]Row, len(requests)),
		complete: make([]bool, len(requests)),
		hopes:    hopesOf(requests),
	}
	stop := r.reportProgress()
	defer stop()
	err := r.send(ctx)
	r.inHand.Wait()
	return r.result(), errors.Join(err, ctx.Err())
}

// send returns when the last request has left, the run is given up, or ctx has ended.
func (r *run) send(ctx context.Context) error {
	wake, err := responder.NewTimer()
	if err != nil {
		return err
	}
	defer wake.Close()
	defer context.AfterFunc(ctx, wake.Interrupt)()
	opening, stop := context.WithCancel(ctx)
	defer stop()
	batches, opened := make(chan []socket), make(chan error, 1)
	go func() { opened <- r.openSockets(opening, batches) }()
	first := <-batches
	r.began = time.Now() // not before the first request can leave
	r.dispatch(ctx, wake, first, batches)
	stop()
	return <-opened
}

func (r *run) result() Result {
	var rows []Row
	for i, complete := range r.complete {
		if complete {
			rows = append(rows, r.rows[i])
		}
	}
	return Result{Rows: rows, Schedule: ScheduleOf(rows)}
}

// now is the time since the run began.
func (r *run) now() time.Duration { return time.Since(r.began) }

// end books the row of a request that was sent.
func (r *run) end(row Row) {
	r.rows[row.ID] = row
	r.complete[row.ID] = true
	r.done.Add(1)
}

// reportProgress reports until stop, which reports the end.
func (r *run) reportProgress() (stop func()) {
	if r.Progress == nil {
		return func() {}
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(100 * time.Millisecond)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				r.Progress(int(r.done.Load()), len(r.requests))
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
		r.Progress(int(r.done.Load()), len(r.requests))
	}
}

// dispatch starts every request when it is due and hands it on, until ctx ends or the run is
// given up.
func (r *run) dispatch(ctx context.Context, wake *responder.Timer, first []socket, more <-chan []socket) {
	id := 0
	for batch := first; batch != nil; batch = <-more {
		for i, s := range batch {
			if r.givenUp(id) || !r.waitUntil(ctx, wake, r.requests[id].At) {
				closeSockets(batch[i:])
				return
			}
			r.start(ctx, id, s)
			id++
		}
	}
}

// givenUp returns true if the first n requests have left too late for any result.
func (r *run) givenUp(n int) bool { return r.Quit > 0 && n >= r.Quit && r.hopes.lost() }

func (r *run) waitUntil(ctx context.Context, wake *responder.Timer, at time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	delay := at - r.now()
	if delay <= 0 {
		return true
	}
	wake.Set(delay)
	return wake.Wait()
}

// start sends the SYN and leaves the rest to the request's exchange.
func (r *run) start(ctx context.Context, id int, s socket) {
	request := r.requests[id]
	row := Row{ID: id, From: request.From, Intended: request.At, Service: request.Service, Started: r.now()}
	r.hopes.sent(row.Started - row.Intended)
	to := r.To
	if r.Choose != nil {
		to = r.Choose()
	}
	if s.err == nil {
		s.err = connect(s.fd, responder.Sockaddr(to))
	}
	if s.err != nil {
		unix.Close(s.fd) // -1 if there is none: no harm
		row.Done = r.now()
		row.Outcome, row.Cause = outcomeOf(s.err), s.err.Error()
		r.end(row)
		return
	}
	r.inHand.Add(1)
	go func() {
		defer r.inHand.Done()
		r.exchange(ctx, s.fd, row)
	}()
}

// connect does not wait for the answer.
func connect(fd int, to unix.Sockaddr) error {
	err := unix.Connect(fd, to)
	if err == unix.EINPROGRESS {
		return nil
	}
	return os.NewSyscallError("connect", err)
}
