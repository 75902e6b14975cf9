package loadpage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	writeEvery = 100 * time.Millisecond
	handWithin = time.Second
)

// Report writes a program's busy count, several times a second until ctx ends, on the page that the
// agent hands over at a socket. It needs no privilege but to connect. Where no agent answers it writes
// on the last page, which the data plane still reads, and asks again.
func Report(ctx context.Context, socket string, busy func() uint32) error {
	var w writer
	return w.keep(ctx, socket, busy)
}

// writer is a program's side of a page.
type writer struct {
	conn *net.UnixConn // nil: none is open
	over chan struct{} // closed with the connection's end
	mu   sync.Mutex    // of page
	page []byte        // nil: there was none yet
}

// keep asks for the page of the agent of now, and writes on it several times a second, until ctx ends.
func (w *writer) keep(ctx context.Context, socket string, busy func() uint32) error {
	defer w.close()
	ticks := time.NewTicker(writeEvery)
	defer ticks.Stop()
	for {
		if w.ended() {
			w.renew(socket) // or later: the agent may restart
		}
		if err := w.write(busy); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

func (w *writer) ended() bool {
	if w.conn == nil {
		return true
	}
	select {
	case <-w.over:
		w.conn.Close()
		w.conn = nil
		return true
	default:
		return false
	}
}

// renew goes over to the page that the agent of now hands over.
func (w *writer) renew(socket string) {
	conn, page, err := Receive(socket)
	if err != nil {
		return
	}
	w.replace(page)
	w.conn, w.over = conn, make(chan struct{})
	go func(over chan struct{}) {
		defer close(over)
		conn.Read(make([]byte, 1)) // the agent sends nothing more
	}(w.over)
}

// write writes the number that busy returns. No other write comes between the two.
func (w *writer) write(busy func() uint32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := busy()
	if w.page == nil {
		return nil
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("stamp a load page: %w", err)
	}
	if !guarded(func() { WritePage(w.page, n, time.Duration(now.Nano())) }) {
		unix.Munmap(w.page)
		w.page = nil
	}
	return nil
}

// guarded does something with a mapped page; false: it is no page any more. The socket may have been
// another program's, which cuts the file that it handed over (SIGBUS).
func guarded(do func()) (done bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			if _, is := fault.(interface{ Addr() uintptr }); !is {
				panic(fault)
			}
		}
	}()
	do()
	return true
}

// replace has another page written from now on; nil: none.
func (w *writer) replace(page []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.page != nil {
		unix.Munmap(w.page)
	}
	w.page = page
}

func (w *writer) close() {
	w.replace(nil)
	if w.conn != nil {
		w.conn.Close()
		<-w.over
	}
}

// Receive maps the page that an agent hands over. It is the past when the connection ends.
func Receive(socket string) (conn *net.UnixConn, page []byte, err error) {
	c, err := net.DialTimeout("unix", socket, handWithin)
	if err != nil {
		return nil, nil, fmt.Errorf("ask for the load page at %s: %w", socket, err)
	}
	conn = c.(*net.UnixConn)
	if page, err = receive(conn); err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("take the load page at %s: %w", socket, err)
	}
	return conn, page, nil
}

func receive(conn *net.UnixConn) ([]byte, error) {
	conn.SetReadDeadline(time.Now().Add(handWithin))
	defer conn.SetReadDeadline(time.Time{})
	beside := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), beside)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(beside[:n])
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 {
		return nil, errors.New("no descriptor came")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	defer unix.Close(fds[0]) // the kernel gives room for a descriptor
	page, err := unix.Mmap(fds[0], 0, PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	is := false
	guarded(func() { is = string(page[:len(PageMagic)]) == PageMagic })
	if !is {
		return nil, errors.Join(fmt.Errorf("does not begin with %q: not a load page", PageMagic), unix.Munmap(page))
	}
	return page, nil
}
