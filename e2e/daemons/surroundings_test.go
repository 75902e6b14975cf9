package daemons

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// placed is a daemon that can be started: its role, node, file and control socket.
type placed struct {
	role, file, socket string
	node               *testbed.Node
}

// places are the four daemons, none of which runs, each where it has its links and neighbours.
func places(t *testing.T) []placed {
	t.Helper()
	bed := kit.Up(t, testbed.Config{Servers: 1})
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	var all []placed
	for _, role := range []string{"lb", "agent"} {
		n := daemons(bed)[role]
		kit.End(t, farm.Daemon(n), unix.SIGTERM)
		all = append(all, placed{role, kit.Configuration(bed, n), kit.Control(bed, n), n})
	}
	spaces, dir := kit.NewSpaces(t), t.TempDir()
	for _, p := range []placed{{"edge", "edge", "edge.sock", spaces.Balancer}, {"nf", "n0", "n0.sock", spaces.Nodes[0]}} {
		text := kit.EdgeFile(dir, 1)
		if p.role == "nf" {
			text = kit.NodeFile(dir, 0)
		}
		p.file, p.socket = filepath.Join(dir, p.file+".yaml"), filepath.Join(dir, p.socket)
		kit.Must(t, os.WriteFile(p.file, []byte(text), 0o600))
		all = append(all, p)
	}
	return all
}

// running is a daemon's process.
type running struct {
	placed
	cmd   *exec.Cmd
	ended chan error
}

// begin starts a daemon in its namespace by a shell, with redirections, and with stderr as its log.
func (p placed) begin(t *testing.T, redirections string, log *os.File) *running {
	t.Helper()
	cmd := exec.Command("ip", "netns", "exec", p.node.Namespace, "sh", "-c", `exec "$@" `+redirections, "sh", kit.Proffer, p.role, "--config", p.file)
	if log != nil {
		cmd.Stdout, cmd.Stderr = log, log
	}
	kit.Must(t, testbed.StartChild(cmd, unix.SIGKILL))
	r := &running{p, cmd, make(chan error, 1)}
	go func() { r.ended <- cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill() })
	return r
}

// status waits for one in which something holds.
func (r *running) status(t *testing.T, name string, holds func(*api.Status) bool) {
	t.Helper()
	kit.Eventually(t, r.role+": "+name, func() bool {
		select {
		case err := <-r.ended:
			t.Fatalf("%s has ended: %v", r.role, err)
		default:
		}
		s, err := api.Ask(context.Background(), r.socket)
		return err == nil && holds(&s)
	})
}

// stop sends SIGTERM, which is to end the daemon well.
func (r *running) stop(t *testing.T) {
	t.Helper()
	kit.Must(t, r.cmd.Process.Signal(unix.SIGTERM))
	select {
	case err := <-r.ended:
		if err != nil {
			t.Errorf("%s ended with %v", r.role, err)
		}
	case <-time.After(kit.Patience):
		t.Fatalf("%s: SIGTERM does not end it", r.role)
	}
}

func answers(*api.Status) bool { return true }

func hasTrouble(text string) func(*api.Status) bool {
	return func(s *api.Status) bool {
		return slices.ContainsFunc(s.Problems, func(p string) bool { return strings.Contains(p, text) })
	}
}

// TestLogWithoutReader: a daemon whose log is not read goes on: it reloads, names the lost lines and ends by
// SIGTERM. So does one whose log's reader ends, whose log is on a full disk, or that has no log.
func TestLogWithoutReader(t *testing.T) {
	for _, p := range places(t) {
		t.Run(p.role, func(t *testing.T) {
			reader, log, err := os.Pipe()
			kit.Must(t, err)
			defer reader.Close()
			_, err = unix.FcntlInt(log.Fd(), unix.F_SETPIPE_SZ, 4096)
			kit.Must(t, err)
			r := p.begin(t, "", log)
			log.Close()
			r.status(t, "ready", answers)
			r.status(t, "loses lines, and reloads", func(s *api.Status) bool {
				kit.Must(t, r.cmd.Process.Signal(unix.SIGHUP))
				return s.Log.Lost > 0 && hasTrouble("the log's reader has taken no line for")(s) && s.Reloads+s.Refused > 100
			})
			reader.Close()
			r.status(t, "a log without a reader", func(s *api.Status) bool {
				return hasTrouble("the log cannot be written (write /dev/stderr: broken pipe)")(s)
			})
			r.stop(t)
			for redirections, holds := range map[string]func(*api.Status) bool{
				">/dev/full 2>&1": hasTrouble("no space left on device"),
				">&- 2>&-":        answers,
			} {
				r := p.begin(t, redirections, nil)
				r.status(t, redirections, holds)
				r.stop(t)
			}
		})
	}
}

// TestDiskIsFull: an LB starts and serves on a full disk, refuses other pools until there is room, and then records
// them.
func TestDiskIsFull(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	lb := bed.LBs[0]
	kit.End(t, farm.Daemon(lb), unix.SIGTERM)
	disk := t.TempDir()
	kit.Sh(t, "mount", "-t", "tmpfs", "-o", "size=64k", "none", disk)
	t.Cleanup(func() { kit.Sh(t, "umount", disk) })
	full := filepath.Join(disk, "full")
	kit.Must(t, os.WriteFile(full, make([]byte, 64<<10), 0o600))
	text, err := os.ReadFile(kit.Configuration(bed, lb))
	kit.Must(t, err)
	text = regexp.MustCompile(`(?m)^state: .*$`).ReplaceAll(text, []byte("state: "+disk+"/lb.json"))
	kit.Must(t, os.WriteFile(kit.Configuration(bed, lb), text, 0o600))
	p := kit.Restart(t, bed, lb, "lb")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.Log())
		}
	})
	kit.In(t, bed.Client, "curl", "-sS", "--fail", kit.URL+"/")
	if !hasProblem(t, bed, lb, "other pools are refused") {
		t.Errorf("status names no full disk:\n%s", p.Log())
	}
	kit.Changed(t, bed, lb, "    version: 0\n", "    version: 3\n")
	kit.Must(t, p.Signal(unix.SIGHUP))
	kit.Eventually(t, "another pool is refused", func() bool { return strings.Contains(p.Log(), "the pools stay as they are") })
	kit.Must(t, os.Remove(full))
	kit.Eventually(t, "the pools are recorded", func() bool { return strings.Contains(p.Log(), "the pools are recorded again") })
	kit.Must(t, p.Signal(unix.SIGHUP))
	kit.Eventually(t, "the pool is another", func() bool { return strings.Contains(p.Log(), "configuration reloaded") })
	kit.In(t, bed.Client, "curl", "-sS", "--fail", kit.URL+"/")
	kit.End(t, p, unix.SIGTERM)
}

// TestSignalsAtTheStart: a SIGHUP at any time of the start, from the reading of the configuration on, ends no daemon
// and is a reload afterwards; a SIGTERM ends it well, and so it does one that waits for the writer of a pipe.
func TestSignalsAtTheStart(t *testing.T) {
	for _, p := range places(t) {
		t.Run(p.role, func(t *testing.T) {
			text, err := os.ReadFile(p.file)
			kit.Must(t, err)
			r, w := p.reading(t)
			r.stop(t)
			w.Close()
			for _, after := range []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond} {
				r, w := p.reading(t)
				w.Write(text)
				w.Close()
				time.Sleep(after)
				r.stop(t)
			}
			r, w = p.reading(t)
			w.Write(text)
			w.Close()
			r.status(t, "ready, and has tried to reload", func(s *api.Status) bool { return s.Refused > 0 })
			r.stop(t)
		})
	}
}

// reading starts a daemon with a pipe for a configuration, and sends it SIGHUP while it waits for the writer.
func (p placed) reading(t *testing.T) (*running, *os.File) {
	t.Helper()
	pipe, w, err := os.Pipe()
	kit.Must(t, err)
	t.Cleanup(func() { pipe.Close() })
	p.file = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), pipe.Fd())
	name, err := os.Readlink(p.file)
	kit.Must(t, err)
	r := p.begin(t, "", nil)
	kit.Eventually(t, r.role+" reads", func() bool {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", r.cmd.Process.Pid))
		return slices.ContainsFunc(links, func(link string) bool {
			to, err := os.Readlink(link)
			return err == nil && to == name
		})
	})
	for range 20 {
		kit.Must(t, r.cmd.Process.Signal(unix.SIGHUP))
		time.Sleep(time.Millisecond)
	}
	return r, w
}
