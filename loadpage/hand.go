package loadpage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"proffer/foreign"
)

// Hand is a socket that hands a page over. To each program that connects the agent sends a byte
// with the descriptor of the page (SCM_RIGHTS). The connection stays open: when it ends, the page is
// the past, and the program connects again.
type Hand struct {
	path     string
	folder   *foreign.Folder
	name     string // of the socket there
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

// acceptAgain is the pause after a connection that could not be taken, as without a descriptor.
const acceptAgain = 100 * time.Millisecond

// NewHand makes the socket for the programs that have access, under another name until Give.
func NewHand(path string, access Access) (h *Hand, err error) {
	h = &Hand{path: path, conns: map[*net.UnixConn]bool{}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("make socket %s, which hands a load page over: %w", path, err)
		}
	}()
	if h.folder, h.name, err = foreign.OpenFolder(path); err != nil {
		return nil, err
	}
	if err := h.listen(access); err != nil {
		return nil, errors.Join(err, h.folder.Close())
	}
	return h, nil
}

// listen makes the socket. No program can connect before it has its owner and permissions.
func (h *Hand) listen(access Access) error {
	for _, name := range []string{h.name, h.name + made} {
		if info, err := h.folder.Is(name); err == nil && info.Mode().Type() != fs.ModeSocket {
			return fmt.Errorf("%s is another file", name)
		}
	}
	h.folder.Remove(h.name + made) // of a daemon that was killed
	s, err := h.folder.Bind(h.name + made)
	if err != nil {
		return err
	}
	access.Mode = cmp.Or(access.Mode, defaultMode)
	if h.given, err = s.Stat(); err == nil {
		err = access.give(s, h.given)
	}
	if err != nil {
		return errors.Join(err, s.Close(), h.remove())
	}
	if h.listener, err = s.Listen(mostPrograms); err != nil {
		return errors.Join(err, h.remove())
	}
	return nil
}

// remove removes the socket, by either name, if no other file has it.
func (h *Hand) remove() error {
	var errs []error
	for _, name := range []string{h.name, h.name + made} {
		if info, err := h.folder.Is(name); err == nil && h.given != nil && os.SameFile(info, h.given) {
			errs = append(errs, h.folder.Remove(name))
		}
	}
	return errors.Join(errs...)
}

// Give begins to hand the page over, at the path of the socket. The caller keeps the page until Close.
func (h *Hand) Give(page *os.File) error {
	h.page = page
	if err := h.folder.Rename(h.name+made, h.name); err != nil {
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
		if err != nil {
			time.Sleep(acceptAgain)
			continue
		}
		if !h.keep(c) {
			continue
		}
		h.running.Go(func() {
			defer h.drop(c)
			if _, _, err := c.WriteMsgUnix([]byte{1}, unix.UnixRights(int(h.page.Fd())), nil); err == nil {
				c.Read(make([]byte, 1)) // until either ends
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

// Close ends the connections, and removes the socket if no other socket has its path.
func (h *Hand) Close() error {
	errs := []error{h.listener.Close()}
	h.mu.Lock()
	for c := range h.conns {
		c.Close()
	}
	h.conns = nil
	h.mu.Unlock()
	h.running.Wait()
	return errors.Join(append(errs, h.remove(), h.folder.Close())...)
}
