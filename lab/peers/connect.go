package peers

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// connectWithin bounds one connection.
const connectWithin = 5 * time.Second

// timeConnect opens a connection from the calling thread's namespace, closes it,
// and returns how long connect(2) took: from the SYN to the SYN-ACK, and one wake
// of this thread.
func timeConnect(from, to netip.AddrPort) (took time.Duration, err error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(int64(connectWithin))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return 0, os.NewSyscallError("set SO_SNDTIMEO", err)
	}
	if err := unix.Bind(fd, sockaddr(from)); err != nil {
		return 0, fmt.Errorf("bind to %s: %w", from, err)
	}
	began := time.Now()
	if err := unix.Connect(fd, sockaddr(to)); err != nil {
		return 0, fmt.Errorf("connect from %s to %s: %w", from, to, err)
	}
	return time.Since(began), nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
