package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

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
