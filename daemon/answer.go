package daemon

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"proffer/api"
)

// answerEvery is how often a daemon tries to make a control socket for which there was no room.
const answerEvery = 3 * time.Second

// listen takes the control socket; nil: its disk is full or read-only, which keeps no daemon from its packets.
func (h *Host) listen(path string) (net.Listener, error) {
	socket, err := api.Listen(path)
	if slices.ContainsFunc([]error{unix.ENOSPC, unix.EDQUOT, unix.EROFS}, func(e error) bool { return errors.Is(err, e) }) {
		h.Log.Error("no status until the control socket can be made", "error", err)
		return nil, nil
	}
	return socket, err
}

// answer answers at the control socket until ctx ends, once there is a socket.
func (h *Host) answer(ctx context.Context, socket net.Listener, path string, status func() (api.Status, error)) error {
	if socket == nil {
		ticks, stop := h.Clock.Tick(answerEvery)
		defer stop()
		for socket == nil {
			select {
			case <-ctx.Done():
				return nil
			case <-ticks:
			}
			socket, _ = api.Listen(path)
		}
		h.Log.Info("the control socket is made", "control", path)
	}
	defer socket.Close()
	return api.Serve(ctx, socket, status)
}
