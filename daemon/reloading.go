package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"proffer/api"
)

// The controls of roles, by the files that describe them; a mistake in the file is an error.

func LBControl(ctx context.Context, path string) (string, error) {
	cfg, _, err := readLB(ctx, path)
	if err != nil {
		return "", err
	}
	return cfg.Control, nil
}

func AgentControl(ctx context.Context, path string) (string, error) {
	cfg, err := readAgent(ctx, path)
	if err != nil {
		return "", err
	}
	return cfg.Control, nil
}

func EdgeControl(ctx context.Context, path string) (string, error) {
	cfg, err := readEdge(ctx, path)
	if err != nil {
		return "", err
	}
	return cfg.Control, nil
}

func NFControl(ctx context.Context, path string) (string, error) {
	cfg, err := readDatapath(ctx, path)
	if err != nil {
		return "", err
	}
	return cfg.Control, nil
}

// askAgain is how often Reload asks the daemon if it is done.
const askAgain = 20 * time.Millisecond

// Reload has the daemon at a control socket read its file again. It returns when the file is applied, or
// the daemon's reason to refuse it.
func Reload(ctx context.Context, control string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*reloadsWithin)
	defer cancel()
	before, err := api.Ask(ctx, control)
	if err != nil {
		return err
	}
	pid, err := api.Process(ctx, control)
	if err != nil {
		return err
	}
	if err := unix.Kill(pid, unix.SIGHUP); err != nil {
		return fmt.Errorf("have process %d reload: %w", pid, err)
	}
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d has not read its file again: %w", pid, ctx.Err())
		case <-time.After(askAgain):
		}
		switch s, err := api.Ask(ctx, control); {
		case err != nil:
			return err
		case s.Refused > before.Refused:
			return errors.New(s.NotReloaded)
		case s.Reloads > before.Reloads:
			return nil
		}
	}
}
