package application

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
)

// memcached has no request that waits. One that takes CPU time reads many long values.
func memcached() *Program {
	return &Program{
		Name: "memcached", Needs: []Need{{"memcached", "memcached"}}, Dial: dialMemcached, Without: []Kind{Wait, Mixed},
		Start: func(ctx context.Context, s *Site) error {
			err := s.run("memcached", "-u", "root", "-l", s.At.Addr().String(), "-p", fmt.Sprint(s.At.Port()), "-U", "0", "-c", "4096", "-t", "4", "-m", "256")
			if err != nil {
				return err
			}
			if err := s.answers(ctx, dialMemcached); err != nil {
				return err
			}
			return fillMemcached(ctx, s)
		},
	}
}

// memcachedValue has the length of a value; a request asks for as many as it has CPU time in units
// of 100 µs.
const memcachedValue = 200_000

func fillMemcached(ctx context.Context, s *Site) error {
	conn, err := dialMemcached(ctx, s)
	if err != nil {
		return err
	}
	defer conn.Close()
	c := conn.(*lines)
	if _, err := fmt.Fprintf(c.Conn, "set v 0 0 %d\r\n%s\r\n", memcachedValue, strings.Repeat("v", memcachedValue)); err != nil {
		return err
	}
	return c.until(ctx, "STORED\r\n")
}

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
	return &lines{conn, bufio.NewReaderSize(conn, 1<<18)}, nil
}

func (c *lines) Ask(ctx context.Context, r Request) error {
	keys := strings.Repeat(" v", int(r.CPU.Microseconds()/100))
	if keys == "" {
		keys = " none"
	}
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
		line, err := c.r.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil {
			return fmt.Errorf("memcached: %w", err)
		}
		if string(line) == last {
			return nil
		}
	}
}
