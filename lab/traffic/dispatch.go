package traffic

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// dispatch starts every request when it is due and hands it on, until ctx ends or the run is
// given up.
func (r *run) dispatch(ctx context.Context, wake *timer, first []socket, more <-chan []socket) {
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

func (r *run) waitUntil(ctx context.Context, wake *timer, at time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	delay := at - r.now()
	if delay <= 0 {
		return true
	}
	wake.set(delay)
	return wake.wait()
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
		s.err = connect(s.fd, sockaddr(to))
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
