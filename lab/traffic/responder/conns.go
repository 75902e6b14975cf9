package responder

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// conns are the connections that a server of long connections has open, so that
// Close can end them all.
type conns struct {
	mu       sync.Mutex
	open     map[io.Closer]bool
	closed   bool
	handlers sync.WaitGroup
}

// serve hands every connection of l to handle, on a goroutine of its own, and
// closes it afterwards. It returns nil after close.
func (c *conns) serve(l net.Listener, handle func(net.Conn)) error {
	if !c.add(l) {
		return nil
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return c.ended(l, err)
		}
		// Go probes idle connections every 15 s: here idle means silent, or no
		// balancer would ever see an idle flow.
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetKeepAlive(false) // it fails for a connection that has gone
		}
		if !c.add(conn) {
			return nil
		}
		go func() {
			defer c.remove(conn)
			handle(conn)
		}()
	}
}

// ended is nil if the error of whatever is served comes of close.
func (c *conns) ended(l net.Listener, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	return fmt.Errorf("serve on %s: %w", l.Addr(), err)
}

// add returns false, and closes x, if all is closed already. Else remove, or
// close, ends x.
func (c *conns) add(x io.Closer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = x.Close()
		return false
	}
	if c.open == nil {
		c.open = map[io.Closer]bool{}
	}
	c.open[x] = true
	if _, served := x.(net.Conn); served {
		c.handlers.Add(1)
	}
	return true
}

func (c *conns) remove(x net.Conn) {
	_ = x.Close()
	c.mu.Lock()
	delete(c.open, x)
	c.mu.Unlock()
	c.handlers.Done()
}

// close returns when no handler runs any more. A second close does nothing.
func (c *conns) close() {
	c.mu.Lock()
	c.closed = true
	for x := range c.open {
		_ = x.Close()
	}
	c.mu.Unlock()
	c.handlers.Wait()
}
