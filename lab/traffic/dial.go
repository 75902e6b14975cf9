package traffic

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"proffer/lab/traffic/raw"
	"proffer/lab/traffic/responder"
)

// Dial names the ends of flows, one from each address.
type Dial struct {
	To      netip.AddrPort
	From    []netip.AddrPort // of To's family; of one that is not valid the kernel chooses
	Rate    float64          // connections begun a second; 0: all at once
	Timeout time.Duration    // for the handshake; 0: 10 s
	Enter   func() error     // as Client's
}

// line is one flow's connection, or why there is none.
type line struct {
	conn net.Conn
	err  error
}

// sockets opens one a flow, where Enter leads.
func (d Dial) sockets(open func(from, to netip.AddrPort) (int, error)) (sockets []socket, err error) {
	err = raw.Inside(d.Enter, func() error {
		for _, from := range d.From {
			fd, err := open(from, d.To)
			sockets = append(sockets, socket{fd, err})
		}
		return nil
	})
	return sockets, err
}

// connect makes all connections and returns when each has been made or has
// failed. Its own error means that there was no try: Enter failed or ctx ended.
func (d Dial) connect(ctx context.Context) ([]line, error) {
	sockets, err := d.sockets(openFrom)
	if err != nil {
		return nil, err
	}
	timeout := d.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	lines := make([]line, len(sockets))
	var inHand sync.WaitGroup
	began := time.Now()
	for i, s := range sockets {
		if lines[i].err = s.err; s.err != nil {
			continue
		}
		if lines[i].err = d.begin(ctx, began, i, s.fd); lines[i].err != nil {
			unix.Close(s.fd)
			continue
		}
		deadline := time.Now().Add(timeout)
		inHand.Go(func() { lines[i].conn, lines[i].err = settle(ctx, s.fd, deadline) })
	}
	inHand.Wait()
	if err := ctx.Err(); err != nil {
		hangUpAll(lines)
		return nil, fmt.Errorf("connect to %s: %w", d.To, err)
	}
	return lines, nil
}

// begin waits until flow i is due and sends its SYN.
func (d Dial) begin(ctx context.Context, began time.Time, i, fd int) error {
	if d.Rate > 0 {
		due := time.Duration(float64(i) / d.Rate * float64(time.Second))
		select {
		case <-time.After(time.Until(began.Add(due))):
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return connect(fd, responder.Sockaddr(d.To))
}

// settle takes over a socket after its SYN has left and waits for the answer.
func settle(ctx context.Context, fd int, deadline time.Time) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), "connection")
	defer file.Close() // silent has a copy
	// It fails only for a descriptor that is not pollable.
	_ = file.SetDeadline(deadline)
	defer context.AfterFunc(ctx, func() { _ = file.SetDeadline(time.Unix(1, 0)) })()
	if _, err := connected(file); err != nil {
		return nil, err
	}
	return silent(file)
}

// silent makes a connection that sends nothing of its own accord: net turns
// probes of idle connections on.
func silent(file *os.File) (net.Conn, error) {
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("take over connection: %w", err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAlive(false) // it fails for a connection that has gone
	}
	return conn, nil
}

func hangUpAll(lines []line) {
	for _, l := range lines {
		if l.conn != nil {
			_ = l.conn.Close()
		}
	}
}
