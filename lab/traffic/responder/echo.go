package responder

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
)

// Echo is a TCP server of long connections. It answers each line
//
//	<id> <n>
//
// with its own name before it, for as long as the client likes, and never
// speaks first: an idle connection stays open and silent. Its books show
// whether a connection was served once, and by which server.
type Echo struct {
	Name  string
	conns conns

	mu       sync.Mutex
	opened   map[string]int
	accepted map[netip.AddrPort]int
}

// NewEcho returns a server that Serve makes answer. A name has no spaces.
func NewEcho(name string) *Echo {
	return &Echo{Name: name, opened: map[string]int{}, accepted: map[netip.AddrPort]int{}}
}

// Serve takes connections from l until Close, after which it returns nil.
func (e *Echo) Serve(l net.Listener) error {
	if err := e.conns.serve(l, e.handle); err != nil {
		return fmt.Errorf("echo %s: %w", e.Name, err)
	}
	return nil
}

// Close closes listeners and connections.
func (e *Echo) Close() error {
	e.conns.close()
	return nil
}

// Opened returns, by id, how many connections have spoken in its name.
func (e *Echo) Opened() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.opened)
}

// Accepted returns, by the client's address, how many connections have come,
// silent connections included: a client served twice shows here even
// if it speaks to one server only.
func (e *Echo) Accepted() map[netip.AddrPort]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.accepted)
}

func (e *Echo) handle(conn net.Conn) {
	count(&e.mu, e.accepted, ClientOf(conn))
	known := ""
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		id, _, _ := strings.Cut(lines.Text(), " ")
		if id != known {
			count(&e.mu, e.opened, id)
			known = id
		}
		if _, err := fmt.Fprintf(conn, "%s %s\n", e.Name, lines.Text()); err != nil {
			return // the client has left
		}
	}
}

func count[K comparable](mu *sync.Mutex, counters map[K]int, key K) {
	mu.Lock()
	defer mu.Unlock()
	counters[key]++
}

// ClientOf is the far end; an IPv4 client stays one on an IPv6 socket.
func ClientOf(conn net.Conn) netip.AddrPort {
	return plain(conn.RemoteAddr().(*net.TCPAddr).AddrPort())
}

func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
