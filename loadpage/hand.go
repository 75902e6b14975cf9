package loadpage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Hand is a socket that hands a page over. To each program that connects the agent sends one byte
// with the descriptor of the page (SCM_RIGHTS). The connection stays open: when it ends, the page is
// the past, and the program connects again.
type Hand struct {
	path     string
	listener *net.UnixListener
	given    fs.FileInfo // of the socket at its path
	page     *os.File
	mu       sync.Mutex
	conns    map[*net.UnixConn]bool // nil: closed
	running  sync.WaitGroup
}

// mostPrograms bounds the descriptors that programs can make the agent hold.
const mostPrograms = 256

// made is the end of a socket's name until it hands over.
const made = ".new"

// at is the path of a socket.
type at string

func (a at) Chmod(mode fs.FileMode) error { return os.Chmod(string(a), mode) }
func (a at) Chown(uid, gid int) error     { return os.Lchown(string(a), uid, gid) }

// NewHand makes the socket for the programs that have access, under another name until Give.
func NewHand(path string, access Access) (*Hand, error) {
	fail := func(err error) (*Hand, error) {
		return nil, fmt.Errorf("make socket %s, which hands a load page over: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fail(err)
	}
	for _, name := range []string{path, path + made} {
		info, err := os.Lstat(name)
		if err == nil && info.Mode().Type() != fs.ModeSocket {
			return fail(fmt.Errorf("%s is another file", name))
		}
	}
	os.Remove(path + made) // of a daemon that was killed
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	access.Mode = cmp.Or(access.Mode, defaultMode)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path + made}); err != nil {
		return fail(err)
	}
	info, err := os.Lstat(path + made)
	if err == nil {
		err = access.give(at(path+made), info)
	}
	if err == nil { // no one could connect before
		err = unix.Listen(fd, mostPrograms)
	}
	if err != nil {
		return fail(errors.Join(err, os.Remove(path+made)))
	}
	l, err := net.FileListener(f)
	if err != nil {
		return fail(errors.Join(err, os.Remove(path+made)))
	}
	return &Hand{path: path, listener: l.(*net.UnixListener), given: info, conns: map[*net.UnixConn]bool{}}, nil
}

// Give begins to hand the page over, at the path of the socket, and owns it from now on.
func (h *Hand) Give(page *os.File) error {
	h.page = page
	if err := os.Rename(h.path+made, h.path); err != nil {
		return fmt.Errorf("hand the load page over at %s: %w", h.path, err)
	}
	h.running.Go(h.serve)
	return nil
}

func (h *Hand) serve() {
	for {
		c, err := h.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || !h.keep(c) {
			continue
		}
		h.running.Go(func() {
			defer h.drop(c)
			if _, _, err := c.WriteMsgUnix([]byte{1}, unix.UnixRights(int(h.page.Fd())), nil); err == nil {
				c.Read(make([]byte, 1)) // until one of both ends
			}
		})
	}
}

// keep notes a connection; false: it is closed, as this socket is, or too many are open.
func (h *Hand) keep(c *net.UnixConn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conns == nil || len(h.conns) >= mostPrograms {
		c.Close()
		return false
	}
	h.conns[c] = true
	return true
}

func (h *Hand) drop(c *net.UnixConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c)
	c.Close()
}

// Close ends the connections, and removes the socket if no other one has its path.
func (h *Hand) Close() error {
	errs := []error{h.listener.Close()}
	h.mu.Lock()
	for c := range h.conns {
		c.Close()
	}
	h.conns = nil
	h.mu.Unlock()
	h.running.Wait()
	if h.page != nil {
		errs = append(errs, h.page.Close())
	}
	for _, name := range []string{h.path, h.path + made} {
		if info, err := os.Lstat(name); err == nil && os.SameFile(info, h.given) {
			errs = append(errs, os.Remove(name))
		}
	}
	return errors.Join(errs...)
}
