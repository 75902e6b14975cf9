package traffic

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// newSocket opens a non-blocking TCP socket that may take a port on which old
// connections still wait in TIME_WAIT.
func newSocket(addr netip.Addr) (int, error) {
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

// sockaddr leaves zones out: addresses of services and clients are global.
func sockaddr(addr netip.AddrPort) unix.Sockaddr {
	if addr.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
}
