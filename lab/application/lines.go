package application

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// memcached has no request that waits. One that takes CPU time looks for many keys that are not
// there, so that its answer is one line.
func memcached() *Program {
	return &Program{
		Name: "memcached", Needs: []Need{{"memcached", "memcached"}}, Dial: dialMemcached, Without: []Kind{Wait, Mixed},
		Start: func(ctx context.Context, s *Site) error {
			err := s.run("memcached", "-u", "root", "-l", s.At.Addr().String(), "-p", fmt.Sprint(s.At.Port()), "-U", "0", "-c", "4096", "-t", "4", "-m", "256")
			if err != nil {
				return err
			}
			return s.answers(ctx, dialMemcached)
		},
	}
}

// keyTakes is about the CPU time in which memcached finds that it has no such key.
const keyTakes = 100 * time.Nanosecond

// lines is a client of a program that answers with lines.
type lines struct {
	net.Conn
	r *bufio.Reader
}

func dialMemcached(ctx context.Context, s *Site) (Conn, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &lines{conn, bufio.NewReader(conn)}, nil
}

func (c *lines) Ask(ctx context.Context, r Request) error {
	keys := strings.Repeat(" k", 1+int(r.CPU/keyTakes))
	if _, err := io.WriteString(c.Conn, "get"+keys+"\r\n"); err != nil {
		return fmt.Errorf("memcached: %w", err)
	}
	return c.until(ctx, "END\r\n")
}

// until reads up to a line.
func (c *lines) until(ctx context.Context, last string) error {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return fmt.Errorf("memcached: %w", err)
		}
		if line == last {
			return nil
		}
	}
}
