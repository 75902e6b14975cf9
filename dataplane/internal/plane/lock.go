package plane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"proffer/dataplane/internal/hook"
)

// errLocked: another process holds the lock.
var errLocked = errors.New("locked by another process")

// lockDir makes a directory for this user alone, if it is not there, and locks it until the
// returned file is closed. Other users cannot open the directory, so only root locks it.
func lockDir(dir string) (*os.File, error) {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		if err := ownedAlone(dir); err != nil {
			return nil, err
		}
		f, err := os.Open(dir)
		if err == nil {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue // its last holder has just removed it
		case err == nil && isStill(f, dir):
			return f, nil
		}
		f.Close()
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, errLocked
		case err != nil:
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
	}
}

// isStill reports whether path is the directory that is open.
func isStill(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(opened, now)
}

// ownedAlone returns an error for a directory of pins that another user could change: a
// program that is pinned there goes onto the link.
func ownedAlone(dir string) error {
	for ; ; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return err
		}
		if !onBPFFS(filepath.Dir(dir)) {
			return nil // dir is where the file system is mounted
		}
		if st.Uid != 0 && int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
			return fmt.Errorf("%s belongs to user %d with mode %04o: other users could change the pins: remove it, or set node.pin", dir, st.Uid, st.Mode&0o7777)
		}
	}
}

// RemovePins removes a directory of pins with the programs that they keep attached, unless a
// daemon runs on it.
func RemovePins(dir string) error {
	lock, err := lockDir(dir)
	if errors.Is(err, errLocked) {
		return fmt.Errorf("a daemon is running with the pins of %s: stop it first", dir)
	}
	if err != nil {
		return err
	}
	p := Pins{dir: dir, lock: lock}
	return errors.Join(hook.Remove(dir), p.Unlock())
}
