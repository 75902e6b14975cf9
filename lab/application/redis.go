package application

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// resp is a client of redis.
type resp struct {
	net.Conn
	r *bufio.Reader
}

// burnLua takes so many µs of CPU time, about.
const burnLua = "local n = 0 for i = 1, tonumber(ARGV[1]) * 40 do n = n + i end return n"

func dialRedis(ctx context.Context, s *Site) (Conn, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &resp{Conn: conn, r: bufio.NewReader(conn)}, nil
}

// Ask: a Lua script takes CPU time, DEBUG SLEEP waits and has all others wait. A request for
// nothing is a PING.
func (c *resp) Ask(ctx context.Context, r Request) error {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	switch {
	case r.CPU > 0:
		return c.do("EVAL", burnLua, "0", strconv.FormatInt(r.CPU.Microseconds(), 10))
	case r.Wait > 0:
		return c.do("DEBUG", "SLEEP", fmt.Sprintf("%.6f", r.Wait.Seconds()))
	default:
		return c.do("PING")
	}
}

// do sends a command and reads its answer.
func (c *resp) do(words ...string) error {
	if err := c.send(words...); err != nil {
		return err
	}
	line, err := c.r.ReadString('\n')
	if err != nil {
		return fmt.Errorf("redis: %s: %w", words[0], err)
	}
	if strings.HasPrefix(line, "-") {
		return fmt.Errorf("redis: %s: %s", words[0], strings.TrimSpace(line))
	}
	return nil
}

func (c *resp) send(words ...string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := io.WriteString(c.Conn, text.String()); err != nil {
		return fmt.Errorf("redis: %s: %w", words[0], err)
	}
	return nil
}

// Rest is the state that an idle client of redis is in: it waits for an element of a list, or for
// messages.
func (c *resp) Rest(i int) error {
	if i%2 == 0 {
		return c.send("BLPOP", "empty", "0")
	}
	return c.send("SUBSCRIBE", "silence")
}

func redis() *Program {
	return &Program{
		Name: "redis", Needs: []Need{{"redis-server", "redis-server"}}, Dial: dialRedis,
		Start: func(ctx context.Context, s *Site) error {
			err := s.run("redis-server", "--bind", s.At.Addr().String(), "--port", fmt.Sprint(s.At.Port()), "--dir", s.Dir,
				"--save", "", "--enable-debug-command", "yes", "--protected-mode", "no", "--maxclients", "5000")
			if err != nil {
				return err
			}
			return s.answers(ctx, dialRedis)
		},
	}
}
