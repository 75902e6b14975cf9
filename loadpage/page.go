// Package loadpage reads the load that a program reports on a page of shared
// memory (`load: page`).
package loadpage

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"proffer/foreign"
)

// The page of `load: page`, all fields in the host's byte order:
//
//	offset  size  field
//	     0     8  magic, the bytes "PROFFER1"
//	     8     8  written: CLOCK_MONOTONIC in ns of the last write
//	    16     4  busy: its busy count now
//	    20  4076  zero
//
// The agent makes the page; any program maps it (MAP_SHARED), and stores busy and then
// written, at least every half second even if nothing changed. A page that is not
// written for a second counts as lost. Several processes of a service may share the
// page by adding to and subtracting from busy atomically.
const (
	PageSize      = 4096
	PageMagic     = "PROFFER1"
	WrittenOffset = 8
	BusyOffset    = 16
)

// Page is the reader's side of a page. It is not mapped: a writer that cuts the file would end the
// reader (SIGBUS), and a file system that does not answer would stop all of its threads at the next
// garbage collection, as the runtime does not know that a thread waits for a page.
type Page struct{ file *os.File }

// Access is the right to write a page: its owner and group, by name or number, and its
// permissions. An empty name is the agent's own, or 0660, for a page that the agent makes, and
// leaves a page that is there as it is.
type Access struct {
	Owner, Group string
	Mode         fs.FileMode
}

// defaultMode lets a page's owner and group write it.
const defaultMode = 0o660

// OpenPage opens the page at path for the writers that have access, and makes it if it is not
// there.
func OpenPage(path string, access Access) (*Page, error) {
	folder, name, err := foreign.OpenFolder(path)
	if err != nil {
		return nil, fmt.Errorf("load page %s: %w", path, err)
	}
	defer folder.Close()
	f, err := folder.Make(name, defaultMode)
	if err != nil {
		return nil, fmt.Errorf("load page %s: %w", path, err)
	}
	if err := prepare(f, access); err != nil {
		f.Close()
		return nil, fmt.Errorf("prepare load page %s: %w", path, err)
	}
	return &Page{f}, nil
}

// prepare gives a page to its writers; a new page has its content afterwards, so that a page that
// could not be given is new again at the next start.
func prepare(f *os.File, access Access) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() > 0 {
		if err := isPage(f, info); err != nil {
			return err
		}
		return access.give(f, info)
	}
	access.Mode = cmp.Or(access.Mode, defaultMode) // the umask has taken the group's away
	if err := access.give(f, info); err != nil {
		return err
	}
	if err := f.Truncate(PageSize); err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(PageMagic), 0)
	return err
}

// isPage returns an error for a file that is no page.
func isPage(f *os.File, info fs.FileInfo) error {
	if info.Size() < PageSize {
		return fmt.Errorf("%d bytes long, want %d: not a load page", info.Size(), PageSize)
	}
	var magic [8]byte
	if _, err := f.ReadAt(magic[:], 0); err != nil {
		return err
	}
	if string(magic[:]) != PageMagic {
		return fmt.Errorf("does not begin with %q: not a load page", PageMagic)
	}
	return nil
}

// writable is a file, or the path of a socket.
type writable interface {
	Chmod(fs.FileMode) error
	Chown(uid, gid int) error
}

// give changes permissions, owner and group where they differ. The owner comes last: changing
// the permissions of another user's file takes CAP_FOWNER.
func (a Access) give(f writable, info fs.FileInfo) error {
	uid, gid, err := a.Numbers()
	if err != nil {
		return err
	}
	if a.Mode != 0 && a.Mode != info.Mode().Perm() {
		if err := f.Chmod(a.Mode); err != nil {
			return fmt.Errorf("%w (CAP_FOWNER)", err)
		}
	}
	is := info.Sys().(*syscall.Stat_t)
	if uid >= 0 && uid != int(is.Uid) || gid >= 0 && gid != int(is.Gid) {
		if err := f.Chown(uid, gid); err != nil {
			return fmt.Errorf("%w (CAP_CHOWN, or for a group be its member)", err)
		}
	}
	return nil
}

// Numbers are those of the owner and the group; -1 for none.
func (a Access) Numbers() (uid, gid int, err error) {
	uid, err = number(a.Owner, func(name string) (string, error) {
		u, err := user.Lookup(name)
		if err != nil {
			return "", err
		}
		return u.Uid, nil
	})
	if err != nil {
		return uid, gid, err
	}
	gid, err = number(a.Group, func(name string) (string, error) {
		g, err := user.LookupGroup(name)
		if err != nil {
			return "", err
		}
		return g.Gid, nil
	})
	return uid, gid, err
}

// number is that of an account; -1 for none.
func number(name string, lookup func(string) (string, error)) (int, error) {
	if name == "" {
		return -1, nil
	}
	if n, err := strconv.Atoi(name); err == nil {
		return n, nil
	}
	text, err := lookup(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// readAgain bounds the readings of a page that changes meanwhile.
const readAgain = 8

// Read returns the busy count and when it was written (CLOCK_MONOTONIC; 0: never, or the file is no
// longer a whole page). It reads until two readings are alike, as read(2) may give half of a word that
// is being written.
func (p *Page) Read() (busy uint32, written time.Duration) {
	var before, now [BusyOffset + 4]byte
	for i := range readAgain {
		before = now
		if _, err := p.file.ReadAt(now[:], 0); err != nil {
			return 0, 0
		}
		if i > 0 && now == before {
			break
		}
	}
	// The writer stores the instant last, so the earlier instant goes with the later count.
	return binary.NativeEndian.Uint32(now[BusyOffset:]), time.Duration(binary.NativeEndian.Uint64(before[WrittenOffset:]))
}

// Word reads a page in memory. The writer stores the instant last, so it is read first.
func Word(page io.ReaderAt) (busy uint32, written time.Duration, err error) {
	var b [BusyOffset + 4]byte
	_, err = page.ReadAt(b[:BusyOffset], 0)
	if err == nil {
		_, err = page.ReadAt(b[BusyOffset:], BusyOffset)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read a load page: %w", err)
	}
	written = time.Duration(binary.NativeEndian.Uint64(b[WrittenOffset:]))
	return binary.NativeEndian.Uint32(b[BusyOffset:]), written, nil
}

// Close stops reading; the file stays for its writer.
func (p *Page) Close() error { return p.file.Close() }

// WritePage is the writer's side for programs in Go, and an example for other
// languages.
func WritePage(mem []byte, busy uint32, now time.Duration) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&mem[BusyOffset])), busy)
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&mem[WrittenOffset])), uint64(now))
}
