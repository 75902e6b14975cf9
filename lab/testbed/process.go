package testbed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// grace is how long a process has between SIGTERM and SIGKILL.
const grace = 5 * time.Second

// Process is a program that runs inside a node.
type Process struct {
	Name    string // node and program: s1-proffer
	LogFile string // its stdout and stderr, unless the command had its own

	cmd  *exec.Cmd
	done chan struct{}
	err  error // returned by Wait; valid once done is closed
}

// Start runs a program inside the node with this process's environment; its
// stdout and stderr go to a file in the bed's Dir. When ctx ends it gets
// SIGTERM, and SIGKILL after 5 s.
func (n *Node) Start(ctx context.Context, name string, args ...string) (*Process, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	return n.StartCommand(cmd)
}

// StartCommand is Start for a prepared command: with its own environment,
// directory, input or output. Only the network namespace differs from ours:
// /sys/fs/bpf and /sys/kernel/btf are the machine's.
//
// The program is in a process group of its own, so that a terminal's Ctrl-C
// reaches only the process that will close the bed, and it dies with this process.
func (n *Node) StartCommand(cmd *exec.Cmd) (*Process, error) {
	p := &Process{
		Name: n.Name + "-" + filepath.Base(cmd.Path),
		cmd:  cmd,
		done: make(chan struct{}),
	}
	if cmd.WaitDelay == 0 { // of a program that left a child with its output
		cmd.WaitDelay = grace
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	if cmd.Stdout == nil && cmd.Stderr == nil {
		log, err := n.bed.log(p.Name)
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", p.Name, err)
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr, p.LogFile = log, log, log.Name()
	}
	if err := n.bed.spawner.start(n, p); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// log makes the first of NAME.log, NAME-2.log … that is free.
func (b *Bed) log(name string) (*os.File, error) {
	for i := 1; ; i++ {
		path := filepath.Join(b.Dir, name)
		if i > 1 {
			path += fmt.Sprintf("-%d", i)
		}
		f, err := os.OpenFile(path+".log", os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
}

// Pid is the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed once the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end and returns the error of exec.Cmd.Wait.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends a signal; a process that has ended is os.ErrProcessDone.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Stop ends the process: SIGTERM, and after 5 s SIGKILL to its whole process
// group. That it had ended already, or how it ended, is no error.
func (p *Process) Stop() error {
	if err := p.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
	}
	if err := unix.Kill(-p.Pid(), unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill %s: %w", p.Name, err)
	}
	<-p.done
	return nil
}

// Log returns the process's output so far, trimmed.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.LogFile)
	if err != nil {
		return fmt.Sprintf("(no log of %s: %v)", p.Name, err)
	}
	return strings.TrimSpace(string(text))
}

// spawner starts all processes of a bed from one thread that lives as long as
// the bed: the kernel sends a Pdeathsig when the *thread* that forked ends.
type spawner struct {
	jobs    chan func()
	mu      sync.Mutex // guards the rest
	started []*Process
	closed  bool
}

func newSpawner() *spawner {
	s := &spawner{jobs: make(chan func())}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

func (s *spawner) start(n *Node, p *Process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	result := make(chan error)
	s.jobs <- func() { result <- n.Do(p.cmd.Start) }
	if err := <-result; err != nil {
		return err
	}
	s.started = append(s.started, p)
	return nil
}

// stopAll stops every process at once and lets the thread go.
func (s *spawner) stopAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	errs := make([]error, len(s.started))
	var group sync.WaitGroup
	for i, p := range s.started {
		group.Go(func() { errs[i] = p.Stop() })
	}
	group.Wait()
	close(s.jobs)
	return errors.Join(errs...)
}

// controlGroups is where the machine's control groups are mounted: all controllers at once
// (version 2), or a folder each (version 1).
const controlGroups = "/sys/fs/cgroup"

// Quota is a control group of a node: its processes get a share of CPU time together. The
// bed's Close removes it.
type Quota struct {
	folders []string // version 2: one; version 1: of the controllers cpu and cpuacct
	unified bool
}

// Quota makes a control group for processes of the node, without a limit yet.
func (n *Node) Quota() (*Quota, error) {
	return newQuota(controlGroups, namespacePrefix(n.bed.Run)+n.Name)
}

func newQuota(root, name string) (*Quota, error) {
	q := &Quota{unified: exists(filepath.Join(root, "cgroup.controllers"))}
	if q.unified {
		// It may be read-only and have cpu already; without, Set fails.
		_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu"), 0o644)
	}
	for _, parent := range hierarchies(root) {
		folder := filepath.Join(parent, name)
		if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make a control group: %w: is %s mounted, with the controllers cpu and cpuacct?", err, root)
		}
		q.folders = append(q.folders, folder)
	}
	return q, nil
}

// hierarchies are the folders below which quotas are made.
func hierarchies(root string) []string {
	if exists(filepath.Join(root, "cgroup.controllers")) {
		return []string{root}
	}
	return []string{filepath.Join(root, "cpu"), filepath.Join(root, "cpuacct")}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Command is a program that starts inside the control group, as do its children.
func (q *Quota) Command(program string, args ...string) *exec.Cmd {
	script, last := "", len(q.folders)-1
	for i := range q.folders {
		script += fmt.Sprintf(`echo $$ >"$%d" && `, i+1)
	}
	script += fmt.Sprintf(`shift %d && exec "$@"`, last+1)
	all := []string{"-c", script, filepath.Base(program)}
	for _, folder := range q.folders {
		all = append(all, filepath.Join(folder, "cgroup.procs"))
	}
	return exec.Command("sh", append(append(all, program), args...)...)
}

// Set lets the processes run for share of a core, counted over each period (CFS bandwidth
// control). The kernel ends a turn at a tick, and takes the excess from the next
// periods.
func (q *Quota) Set(share float64, period time.Duration) error {
	quota, length := strconv.Itoa(int(share*float64(period.Microseconds()))), strconv.Itoa(int(period.Microseconds()))
	files := [][2]string{{"cpu.max", quota + " " + length}}
	if !q.unified {
		files = [][2]string{{"cpu.cfs_period_us", length}, {"cpu.cfs_quota_us", quota}}
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(q.folders[0], f[0]), []byte(f[1]), 0o644); err != nil {
			return fmt.Errorf("limit CPU time: %w", err)
		}
	}
	return nil
}

// Used is the CPU time that the processes have had.
func (q *Quota) Used() (time.Duration, error) {
	name, unit := "cpuacct.usage", time.Nanosecond
	if q.unified {
		name, unit = "cpu.stat", time.Microsecond
	}
	text, err := os.ReadFile(filepath.Join(q.folders[len(q.folders)-1], name))
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(string(text), "usage_usec "), "\n")
	used, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %s: %w", name, err)
	}
	return time.Duration(used) * unit, nil
}

// removeQuotas removes the control groups of a run without processes.
func removeQuotas(root, run string) error {
	var errs []error
	for _, parent := range hierarchies(root) {
		folders, err := filepath.Glob(filepath.Join(parent, namespacePrefix(run)+"*"))
		errs = append(errs, err)
		for _, folder := range folders {
			errs = append(errs, removeGroup(folder))
		}
	}
	return errors.Join(errs...)
}

// removeGroup waits for processes that were killed a moment ago.
func removeGroup(folder string) error {
	for deadline := time.Now().Add(time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Rmdir(folder)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove control group %s: %w", folder, err)
		}
	}
}
