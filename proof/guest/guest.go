// Package guest boots small virtual machines, for tests that need a kernel of their
// own: all namespaces of a machine share the secret of its SYN cookies, so only
// two kernels show which cookie an ACK carries; and another kernel may refuse
// programs that this kernel takes.
//
// A guest is Debian's kernel under QEMU, with an initramfs that is made here and
// nothing else: no disk, no distribution. Its only link takes the place of a
// namespace's eth0. QEMU emulates the processor (TCG), although that is slower:
// it runs the same everywhere, where a /dev/kvm that exists may be one that
// Debian's kernels do not boot on (seen on a nested Linux 6.18).
package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"

	"proffer/proof/guest/internal/call"
)

const (
	// DefaultKernel is Debian's smallest kernel with BTF: no drivers but for
	// virtual machines.
	DefaultKernel = "linux-image-cloud-amd64"

	bootWithin = 3 * time.Minute
)

// Place is where a guest is plugged in: Do runs a function in a network
// namespace. Its eth0 becomes the guest's.
type Place interface {
	Do(func() error) error
}

// Config describes the guest to boot.
type Config struct {
	Name   string // in errors and the process list
	Place  Place
	Kernel string            // Debian package; "" means DefaultKernel
	Files  map[string][]byte // the guest's files besides busybox, by path; all may be executed
}

// Guest is a running virtual machine with busybox in /bin, eth0 down and
// without addresses.
type Guest struct {
	name    string
	place   Place
	machine *machine
	busy    sync.Mutex // held by the one conversation on the line
	line    net.Conn
	send    *json.Encoder
	receive *json.Decoder
	close   sync.Once
	closed  error
}

// ExitError is a program's end with another exit code than 0.
type ExitError struct {
	Code   int // -1 if a signal ended it
	Stderr string
}

func (e *ExitError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("exit code %d: %s", e.Code, e.Stderr))
}

// Boot starts a guest and returns when it obeys, within a minute once its
// kernel is downloaded. The place loses all its addresses for good. When it fails, no process, link or file is left but the kernel's
// cache; otherwise the caller closes the guest.
func Boot(ctx context.Context, c Config) (*Guest, error) {
	g, err := boot(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("boot guest %s: %w", c.Name, err)
	}
	return g, nil
}

func boot(ctx context.Context, c Config) (*Guest, error) {
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return nil, errors.New("qemu-system-x86_64 is missing: `make test` installs it (Debian's package qemu-system-x86)")
	}
	kernel, image, err := assemble(ctx, c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, bootWithin)
	defer cancel()
	tap, err := plug(c.Place)
	if err != nil {
		return nil, err
	}
	defer tap.Close() // QEMU has its own
	m, line, err := launch(c.Place, qemu, c.Name, kernel, image, tap)
	if err != nil {
		return nil, errors.Join(err, unplug(c.Place))
	}
	g := &Guest{
		name: c.Name, place: c.Place, machine: m,
		line: line, send: json.NewEncoder(line), receive: json.NewDecoder(line),
	}
	if _, err := g.Run(ctx, "true"); err != nil {
		err = errors.Join(err, g.Close())
		return nil, fmt.Errorf("%w\nits console:\n%s", err, g.Console())
	}
	return g, nil
}

// Run runs a program in the guest to its end and returns its
// stdout; another exit code than 0 is an ExitError. A program that shall stay is
// started by the shell: Run(ctx, "sh", "-c", "daemon >/log 2>&1 &").
//
// Programs run one at a time. A caller that gives up by ctx gives up the guest: it still
// waits for that program, and no later Run succeeds.
func (g *Guest) Run(ctx context.Context, args ...string) (stdout string, err error) {
	reply, err := g.ask(ctx, call.Request{Args: args})
	if err == nil && reply.Error != "" {
		err = errors.New(reply.Error)
	}
	if err == nil && reply.Code != 0 {
		err = &ExitError{reply.Code, reply.Stderr}
	}
	if err != nil {
		return reply.Stdout, fmt.Errorf("run %v on guest %s: %w", args, g.name, err)
	}
	return reply.Stdout, nil
}

func (g *Guest) ask(ctx context.Context, r call.Request) (reply call.Reply, err error) {
	g.busy.Lock()
	defer g.busy.Unlock()
	stop := context.AfterFunc(ctx, func() { g.line.SetDeadline(time.Now()) })
	defer stop()
	if err = g.send.Encode(r); err == nil {
		err = g.receive.Decode(&reply)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return reply, err
}

// Console returns the output of the kernel and of process 1 so far.
func (g *Guest) Console() string { return strings.TrimSpace(g.machine.console.String()) }

// Close ends the guest as a power cut does and unplugs it. Only the first call
// has an effect; all calls return its error.
func (g *Guest) Close() error {
	g.close.Do(func() {
		g.machine.kill()
		g.closed = errors.Join(g.line.Close(), unplug(g.place))
	})
	return g.closed
}
