package responder

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Listen opens a TCP listener in the calling thread's network namespace with
// exactly this backlog, where Go's net.Listen takes the system's largest. The
// kernel lets backlog + 1 connections wait, then drops SYNs without a word.
func Listen(addr netip.AddrPort, backlog int) (net.Listener, error) {
	fd, err := NewSocket(addr.Addr())
	if err != nil {
		return nil, err
	}
	socket := os.NewFile(uintptr(fd), addr.String())
	defer socket.Close() // FileListener has a copy
	if err := unix.Bind(fd, Sockaddr(addr)); err != nil {
		return nil, fmt.Errorf("bind to %s: %w", addr, err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	l, err := net.FileListener(socket)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return l, nil
}

// NewSocket opens a non-blocking TCP socket that may take a port on which old
// connections still wait in TIME_WAIT.
func NewSocket(addr netip.Addr) (int, error) {
	family := unix.AF_INET6
	if addr.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, fmt.Errorf("open socket: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("set SO_REUSEADDR: %w", err)
	}
	return fd, nil
}

// Sockaddr leaves zones out: addresses of services and clients are global.
func Sockaddr(addr netip.AddrPort) unix.Sockaddr {
	if addr.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
}
