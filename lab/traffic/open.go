package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"proffer/lab/traffic/responder"
)

// ahead is the number of sockets that are opened at a time, before they are due,
// so that between waking and the SYN there is one system call.
const ahead = 64

// socket is a connection not yet begun, or why it could not be prepared.
type socket struct {
	fd  int
	err error
}

// openSockets prepares the sockets of all requests and closes batches. A socket
// stays in the namespace in which it was opened: only this has to run where
// Enter leads, the connecting thread may be anywhere.
//
// The thread is never unlocked: Go ends it with its goroutine, so that no code
// else gets one in a foreign namespace.
func (r *run) openSockets(ctx context.Context, batches chan<- []socket) error {
	defer close(batches)
	runtime.LockOSThread()
	if r.Enter != nil {
		if err := r.Enter(); err != nil {
			return fmt.Errorf("enter the client's namespace: %w", err)
		}
	}
	for requests := range slices.Chunk(r.requests, ahead) {
		batch := openBatch(requests, r.To)
		select {
		case batches <- batch:
		case <-ctx.Done():
			closeSockets(batch)
			return nil
		}
	}
	return nil
}

func openBatch(requests []Request, to netip.AddrPort) []socket {
	batch := make([]socket, len(requests))
	for i, request := range requests {
		batch[i].fd, batch[i].err = openFrom(request.From, to)
	}
	return batch
}

func closeSockets(batch []socket) {
	for _, s := range batch {
		if s.err == nil {
			unix.Close(s.fd)
		}
	}
}

// openFrom returns a socket bound to from, of the family of to.
func openFrom(from, to netip.AddrPort) (int, error) {
	fd, err := responder.NewSocket(to.Addr())
	if err != nil {
		return -1, err
	}
	if err := readyToSend(fd, from); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func readyToSend(fd int, from netip.AddrPort) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("set TCP_NODELAY: %w", err)
	}
	if !from.IsValid() {
		return nil
	}
	if err := unix.Bind(fd, responder.Sockaddr(from)); err != nil {
		return fmt.Errorf("bind to %s: %w", from, err)
	}
	return nil
}
