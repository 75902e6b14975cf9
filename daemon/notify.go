package daemon

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// States of a daemon, as a service manager takes them (sd_notify(3)).
const (
	isReady  = "READY=1"
	isEnding = "STOPPING=1"
)

// notifyWithin bounds the wait for a service manager that stands still.
const notifyWithin = time.Second

// isReloading is the state of a daemon that reads its configuration again since now, by
// CLOCK_MONOTONIC.
func isReloading(now time.Duration) string {
	return fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Microseconds())
}

// notify sends a state to the service manager that started this process, if any did. A
// socket with an @ is an abstract socket, as for package net.
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	defer conn.Close()
	conn.SetWriteDeadline(time.Now().Add(notifyWithin)) // its queue may be full
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

// notify sends a state; that it cannot be sent ends no daemon.
func (d *daemon) notify(state string) {
	if err := d.host.Notify(state); err != nil {
		d.host.Log.Warn("the service manager does not know", "state", strings.ReplaceAll(state, "\n", " "), "error", err)
	}
}
