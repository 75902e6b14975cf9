package traffic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"proffer/lab/traffic/responder"
)

// Bulk moves as many bytes as will go to or from a BulkServer, a stream a
// connection, and each is checked by its receiver.
type Bulk struct {
	Dial        // Timeout is also the longest silence in the middle of a stream
	Upload bool // else download
}

// Transfer is how one stream ended.
type Transfer struct {
	From    netip.AddrPort // the client's end
	Server  string
	Bytes   int64   // received and right
	Outcome Outcome // OK: all that was sent came, in order, and both sides closed
	Cause   string  // why, if Outcome is not OK
}

// Transfers are streams under way.
type Transfers struct {
	streams []*stream
	stop    chan struct{}
	once    sync.Once
	running sync.WaitGroup
}

// Start opens the streams and returns when each runs or has failed. They run
// until Stop; when ctx ends, they break off.
func (b Bulk) Start(ctx context.Context) (*Transfers, error) {
	lines, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	if b.Timeout == 0 {
		b.Timeout = defaultTimeout
	}
	t := &Transfers{stop: make(chan struct{})}
	for i, l := range lines {
		s := &stream{conn: l.conn, patience: b.Timeout, from: b.From[i], err: l.err}
		t.streams = append(t.streams, s)
		if l.err == nil {
			s.from = l.conn.LocalAddr().(*net.TCPAddr).AddrPort()
			t.running.Go(func() { s.run(ctx, b.Upload, t.stop) })
		}
	}
	return t, nil
}

// Run is Start and, after so long, Stop.
func (b Bulk) Run(ctx context.Context, duration time.Duration) ([]Transfer, error) {
	t, err := b.Start(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(duration):
	case <-ctx.Done():
	}
	return t.Stop(), ctx.Err()
}

// Bytes returns the progress of each stream, in the order of Dial.From. An upload
// counts the bytes that it has sent; a stream that is stuck stops counting.
func (t *Transfers) Bytes() []int64 {
	moved := make([]int64, len(t.streams))
	for i, s := range t.streams {
		moved[i] = s.moved.Load()
	}
	return moved
}

// Stop ends all streams in good order: bytes under way arrive. A stuck stream
// is given its Timeout.
func (t *Transfers) Stop() []Transfer {
	t.once.Do(func() { close(t.stop) })
	t.running.Wait()
	ended := make([]Transfer, len(t.streams))
	for i, s := range t.streams {
		ended[i] = s.transfer()
	}
	return ended
}

// stream is one transfer. Its name is the client's end.
type stream struct {
	conn     net.Conn
	patience time.Duration
	from     netip.AddrPort
	moved    atomic.Int64

	server string // from here on its goroutine's own until it ends
	right  int64
	err    error
}

func (s *stream) transfer() Transfer {
	t := Transfer{From: s.from, Server: s.server, Bytes: s.right, Outcome: standing(s.err)}
	if s.err != nil {
		t.Cause = s.err.Error()
	}
	// Errors of a send and of a shutdown after a RST. A FIN before it would not have
	// broken an upload.
	if errors.Is(s.err, unix.EPIPE) || errors.Is(s.err, unix.ENOTCONN) {
		t.Outcome = Reset
	}
	return t
}

func (s *stream) run(ctx context.Context, upload bool, stop <-chan struct{}) {
	defer s.conn.Close()
	// Closed, not given a deadline: the stream sets its own.
	defer context.AfterFunc(ctx, func() { _ = s.conn.Close() })()
	if upload {
		s.err = s.upload(stop)
	} else {
		s.err = s.download(stop)
	}
	if ctx.Err() != nil {
		s.err = ctx.Err()
	}
}

// greet names the stream and learns its server.
func (s *stream) greet(verb string) (*bufio.Reader, error) {
	s.wait()
	if _, err := fmt.Fprintf(s.conn, "%s %s\n", verb, s.from); err != nil {
		return nil, fmt.Errorf("send request: %w", err)
	}
	in := bufio.NewReaderSize(s.conn, responder.Chunk)
	name, err := in.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("read server's name: %w", err)
	}
	s.server = strings.TrimSpace(name)
	return in, nil
}

// wait starts the patience again.
func (s *stream) wait() { _ = s.conn.SetDeadline(time.Now().Add(s.patience)) }

func (s *stream) upload(stop <-chan struct{}) error {
	in, err := s.greet("put")
	if err != nil {
		return err
	}
	p, buffer := responder.NewPattern(s.from.String()), make([]byte, responder.Chunk)
	for !stopped(stop) {
		p.Fill(buffer)
		s.wait()
		n, err := s.conn.Write(buffer)
		s.moved.Add(int64(n))
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return s.verdict(in)
}

// verdict ends an upload and compares the bytes sent with the bytes received.
func (s *stream) verdict(in *bufio.Reader) error {
	s.wait()
	if err := s.conn.(*net.TCPConn).CloseWrite(); err != nil {
		return fmt.Errorf("end upload: %w", err)
	}
	text, err := in.ReadString('\n')
	if err != nil {
		return fmt.Errorf("read verdict: %w", err)
	}
	count, verdict, _ := strings.Cut(strings.TrimSpace(text), " ")
	if _, err := fmt.Sscan(count, &s.right); err != nil {
		return fmt.Errorf("read verdict %q: %w", text, err)
	}
	if verdict != "ok" || s.right != s.moved.Load() {
		return fmt.Errorf("%d of %d bytes came: %s", s.right, s.moved.Load(), verdict)
	}
	return readClose(in)
}

// download reads up to the server's FIN, which answers ours.
func (s *stream) download(stop <-chan struct{}) error {
	in, err := s.greet("get")
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-stop:
			_ = s.conn.(*net.TCPConn).CloseWrite() // the reader sees why, if it fails
		case <-ended:
		}
	}()
	p, buffer := responder.NewPattern(s.from.String()), make([]byte, responder.Chunk)
	for {
		s.wait()
		n, err := in.Read(buffer)
		if wrong := p.Check(buffer[:n]); wrong != nil {
			return wrong
		}
		s.moved.Add(int64(n))
		s.right = p.At
		if errors.Is(err, io.EOF) && stopped(stop) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
	}
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
