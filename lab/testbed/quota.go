package testbed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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
