package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/control"
)

// Bounds of the command that starts another node: its time, the part of its output that is logged, and
// how long its children may hold the output after its end.
const (
	replicaWithin = time.Minute
	replicaOutput = 1000
	replicaLinger = time.Second
)

// replica runs the command that starts another node, one at a time.
type replica struct {
	log    *slog.Logger
	within time.Duration // a command is to end
	wanted chan start
	after  time.Duration // then it may run again

	mu     sync.Mutex
	status api.ReplicaStatus
}

// start is a command, with the names of the listed nodes that are down.
type start struct {
	command []string
	down    []string
}

func newReplica(log *slog.Logger) *replica {
	return &replica{log: log, within: replicaWithin, wanted: make(chan start, 1)}
}

// want has the command run, unless it still does, or was begun so lately that its node may not have
// joined.
func (r *replica) want(at time.Duration, s start) {
	if at < r.after {
		r.log.Info("the command that starts a node was begun lately: it is not run again", "command", s.command)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.Running {
		r.log.Warn("the command that starts a node still runs: it is not run again", "command", s.command)
		return
	}
	r.status.Running = true
	r.status.Starts++
	r.after = at + control.Patience
	r.wanted <- s
}

// serve runs the wanted commands until ctx ends, which ends them, too.
func (r *replica) serve(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-r.wanted:
			r.log.Info("another node is started", "command", s.command, "down", s.down)
			output, err := s.run(ctx, r.within)
			r.ended(err)
			if err != nil {
				r.log.Error("the command that starts a node failed", "command", s.command, "error", err, "output", output)
				continue
			}
			r.log.Info("the command that starts a node ended", "command", s.command, "output", output)
		}
	}
}

func (r *replica) ended(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Running, r.status.Error = false, ""
	if err != nil {
		r.status.Failures++
		r.status.Error = err.Error()
	}
}

// describe is the status; nil without a command that may run or has run.
func (r *replica) describe(command []string) *api.ReplicaStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.status; len(command) > 0 || now.Starts > 0 {
		return &now
	}
	return nil
}

// run runs the command with its children in a group of processes, which ends with its time.
func (s start) run(ctx context.Context, within time.Duration) (output string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("killed, as it took longer than %v", within))
	defer cancel()
	cmd := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	cmd.Env = append(os.Environ(), "PROFFER_DOWN="+strings.Join(s.down, " "))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = replicaLinger
	var text tail
	cmd.Stdout, cmd.Stderr = &text, &text
	err = cmd.Run()
	switch {
	case errors.Is(err, exec.ErrWaitDelay): // a child has the output, and the command has ended well
		err = nil
	case ctx.Err() != nil && err != nil:
		err = context.Cause(ctx)
	}
	return strings.TrimSpace(string(text)), err
}

// tail keeps the end of a text.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	*t = (*t)[max(0, len(*t)-replicaOutput):]
	return len(p), nil
}
