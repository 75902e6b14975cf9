package api

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// mostConns bounds the connections of a control socket, and so the descriptors that programs can make the
// daemon hold.
const mostConns = 64

// crowd is a listener that closes its oldest connection where there would be too many: an answer takes
// milliseconds, so that is a client that asks nothing or reads nothing.
type crowd struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn // the oldest first
}

func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) >= mostConns {
		c.conns[0].Close()
		c.conns = c.conns[1:]
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

// note is http.Server's ConnState.
func (c *crowd) note(conn net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conns = slices.DeleteFunc(c.conns, func(other net.Conn) bool { return other == conn })
	}
}
