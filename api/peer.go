package api

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Process is the process of the daemon that listens at a control socket.
func Process(ctx context.Context, path string) (pid int, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return 0, fmt.Errorf("no daemon listens at %s: %w", path, err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, fmt.Errorf("ask who listens at %s: %w", path, err)
	}
	return int(peer.Pid), nil
}
