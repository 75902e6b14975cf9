package traffic

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Request is one connection to make: when it is due, the service time that it asks for
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
	wake, err := newTimer()
	if err != nil {
		return err
	}
	defer wake.close()
	defer context.AfterFunc(ctx, wake.interrupt)()
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
