package traffic

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
	fd, err := newSocket(addr.Addr())
	if err != nil {
		return nil, err
	}
	socket := os.NewFile(uintptr(fd), addr.String())
	defer socket.Close() // FileListener has a copy
	if err := unix.Bind(fd, sockaddr(addr)); err != nil {
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
