package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stateDir has a directory for each run, which holds its work files. The live
// process keeps an flock on the directory itself; the kernel lets go of it
// however the process ends. A process that creates or reaps runs holds a lock on stateDir,
// so that no run is seen between its creation and its lock.
const stateDir = "/run/proffer/testbed"

// lockDir opens a directory and takes an flock on it, which Close releases.
func lockDir(path string, how int) (*os.File, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("testbed: %w", err)
	}
	if err := unix.Flock(int(dir.Fd()), how); err != nil {
		dir.Close()
		return nil, fmt.Errorf("testbed: lock %s: %w", path, err)
	}
	return dir, nil
}

// claim makes the directory of a new run and locks it.
func claim() (dir *os.File, run string, err error) {
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, "", fmt.Errorf("testbed: %w", err)
	}
	all, err := lockDir(stateDir, unix.LOCK_EX)
	if err != nil {
		return nil, "", err
	}
	defer all.Close()
	for i := 0; ; i++ {
		run = fmt.Sprintf("%d.%d", os.Getpid(), i)
		path := filepath.Join(stateDir, run)
		err := os.Mkdir(path, 0o755)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, "", fmt.Errorf("testbed: %w", err)
		}
		dir, err = lockDir(path, unix.LOCK_EX|unix.LOCK_NB)
		return dir, run, err
	}
}

// Reap removes the remains of runs without their process: processes inside
// their namespaces (and no others), the namespaces, their files. It returns
// how many runs it removed. Up calls it first.
func Reap() (removed int, err error) {
	if err := able(); err != nil {
		return 0, err
	}
	if _, err := os.Stat(stateDir); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	all, err := lockDir(stateDir, unix.LOCK_EX)
	if err != nil {
		return 0, err
	}
	defer all.Close()
	runs, err := os.ReadDir(stateDir)
	if err != nil {
		return 0, fmt.Errorf("testbed: %w", err)
	}
	for _, r := range runs {
		dir, err := lockDir(filepath.Join(stateDir, r.Name()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) {
			continue // alive, or just closed
		}
		if err == nil {
			err = errors.Join(endDisplaced(r.Name(), 0), removeRun(r.Name()), dir.Close())
		}
		if err != nil {
			return removed, fmt.Errorf("testbed: reap run %s: %w", r.Name(), err)
		}
		removed++
	}
	return removed, nil
}

// removeRun removes the namespaces, the pins and the directory of a run that
// has no processes any more.
func removeRun(run string) error {
	paths, err := namespaces(run)
	errs := []error{err}
	for _, p := range paths {
		errs = append(errs, unname(p))
	}
	errs = append(errs, removeQuotas(controlGroups, run), removePins(pins(run)), os.RemoveAll(filepath.Join(stateDir, run)))
	return errors.Join(errs...)
}

// namespaces lists the paths of a run's namespaces.
func namespaces(run string) ([]string, error) {
	entries, err := os.ReadDir(namespaceDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), namespacePrefix(run)) {
			paths = append(paths, filepath.Join(namespaceDir, e.Name()))
		}
	}
	return paths, nil
}

// identity tells namespaces apart (ioctl_ns(2)).
type identity struct{ dev, inode uint64 }

func identify(path string) (identity, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return identity{st.Dev, st.Ino}, err
}

// endDisplaced ends all processes in the run's network namespaces, except this
// one: descendants of processes started there, and processes that moved in. They have the given time to obey SIGTERM; with none they are killed.
func endDisplaced(run string, grace time.Duration) error {
	paths, err := namespaces(run)
	if err != nil {
		return err
	}
	theirs := make(map[identity]bool)
	for _, p := range paths {
		id, err := identify(p)
		if err != nil {
			return err
		}
		theirs[id] = true
	}
	return wrap("run "+run, endInside(theirs, grace))
}

// endInside is endDisplaced for these namespaces.
func endInside(spaces map[identity]bool, grace time.Duration) error {
	const rounds = 10 // a process may fork while we look
	for range rounds {
		left, err := inside(spaces)
		if err != nil || len(left) == 0 {
			return err
		}
		if grace > 0 {
			finish(left, unix.SIGTERM, grace)
			grace = 0
			continue
		}
		finish(left, unix.SIGKILL, time.Second)
	}
	return errors.New("processes in the namespaces survive SIGKILL")
}

// inside opens a pidfd for every process in one of the namespaces but this one.
func inside(ours map[identity]bool) (pidfds []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		ns := filepath.Join("/proc", e.Name(), "ns/net")
		if id, err := identify(ns); err != nil || !ours[id] {
			continue
		}
		pidfd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // gone meanwhile
		}
		if id, err := identify(ns); err != nil || !ours[id] {
			unix.Close(pidfd) // the number belongs to another process now
			continue
		}
		pidfds = append(pidfds, pidfd)
	}
	return pidfds, nil
}

// finish sends a signal to processes, waits until all are gone or patience ends,
// and closes their pidfds.
func finish(pidfds []int, signal unix.Signal, patience time.Duration) {
	deadline := time.Now().Add(patience)
	for _, fd := range pidfds {
		// An error means gone already; the caller looks again in any case.
		_ = unix.PidfdSendSignal(fd, signal, nil, 0)
	}
	for _, fd := range pidfds {
		awaitReadable(fd, deadline)
		unix.Close(fd)
	}
}

// awaitReadable waits for a pidfd to become readable, that is its process to end.
func awaitReadable(fd int, deadline time.Time) {
	for {
		left := max(0, time.Until(deadline).Milliseconds())
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left))
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// pinDir is where BPF objects are pinned: one file system for all namespaces.
const pinDir = "/sys/fs/bpf"

// Pin is the node's own directory for pinned BPF objects. The directory above
// exists; the daemon that pins makes this directory. Kill removes it, and Close all of the
// bed's.
func (n *Node) Pin() string { return filepath.Join(pins(n.bed.Run), n.Name) }

// pins is the directory of a bed: the file system reserves names with a dot.
func pins(run string) string {
	return filepath.Join(pinDir, "proffer-bed-"+strings.ReplaceAll(run, ".", "-"))
}

// makePins makes the bed's directory, after mounting the BPF file system where
// the machine has not.
func makePins(run string) error {
	if err := mountPins(); err != nil {
		return fmt.Errorf("testbed: no BPF file system at %s: mount -t bpf bpf %s: %w", pinDir, pinDir, err)
	}
	return wrap("testbed: pins", os.Mkdir(pins(run), 0o700))
}

func mountPins() error {
	all, err := lockDir(stateDir, unix.LOCK_EX) // or two beds would mount it twice
	if err != nil {
		return err
	}
	defer all.Close()
	var fs unix.Statfs_t
	if err := unix.Statfs(pinDir, &fs); err != nil || fs.Type == unix.BPF_FS_MAGIC {
		return err
	}
	return unix.Mount("bpf", pinDir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700")
}

// removePins removes a directory of pins and so the objects that nothing else
// holds.
func removePins(dir string) error {
	return wrap("remove pins", os.RemoveAll(dir))
}
