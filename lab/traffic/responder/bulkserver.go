package responder

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
)

// BulkServer is the far side of Bulk. A connection begins with a line and is
// sent the server's name:
//
//	put <stream>   the client sends the stream's pattern up to its FIN and gets
//	               the number of bytes received and the error in them
//	get <stream>   the server sends the pattern until the client's FIN
type BulkServer struct {
	name  string
	conns conns
}

// NewBulkServer returns a server that Serve makes answer. A name has no spaces.
func NewBulkServer(name string) *BulkServer { return &BulkServer{name: name} }

// Serve takes connections from l until Close, after which it returns nil.
func (s *BulkServer) Serve(l net.Listener) error {
	if err := s.conns.serve(l, s.handle); err != nil {
		return fmt.Errorf("bulk server %s: %w", s.name, err)
	}
	return nil
}

// Close closes listeners and connections.
func (s *BulkServer) Close() error {
	s.conns.close()
	return nil
}

// handle leaves errors to the client, which sees each of them too.
func (s *BulkServer) handle(conn net.Conn) {
	in := bufio.NewReaderSize(conn, Chunk)
	head, err := in.ReadString('\n')
	if err != nil {
		return
	}
	if _, err := fmt.Fprintln(conn, s.name); err != nil {
		return
	}
	verb, stream, _ := strings.Cut(strings.TrimSpace(head), " ")
	switch p := NewPattern(stream); verb {
	case "put":
		take(in, conn, p)
	case "get":
		give(in, conn, p)
	}
}

// take reads to the end even after a wrong byte: the client is still sending
// and would see a reset in place of the verdict.
func take(in io.Reader, out io.Writer, p *pattern) {
	verdict := "ok"
	buffer := make([]byte, Chunk)
	for {
		n, err := in.Read(buffer)
		if verdict == "ok" {
			if wrong := p.Check(buffer[:n]); wrong != nil {
				verdict = wrong.Error()
			}
		}
		if err == io.EOF {
			fmt.Fprintf(out, "%d %s\n", p.At, verdict)
			return
		}
		if err != nil {
			return
		}
	}
}

func give(in io.Reader, out io.Writer, p *pattern) {
	var enough atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, in)
		enough.Store(true)
	}()
	buffer := make([]byte, Chunk)
	for !enough.Load() {
		p.Fill(buffer)
		if _, err := out.Write(buffer); err != nil {
			return
		}
	}
}
