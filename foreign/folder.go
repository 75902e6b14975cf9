package foreign

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Folder is a folder that is held, so that its own path is not looked up again.
type Folder struct {
	held found
	at   string
}

// OpenFolder holds the folder of the file at an absolute path, and returns the file's name there.
// Missing folders are made.
func OpenFolder(file string) (*Folder, string, error) {
	at, name := path.Split(path.Clean(file))
	held, err := find(at, true)
	if err == nil && held.kind != unix.S_IFDIR {
		held.close()
		err = unix.ENOTDIR
	}
	if err != nil {
		return nil, "", &fs.PathError{Op: "open the folder", Path: at, Err: err}
	}
	return &Folder{held, at}, name, nil
}

func (f *Folder) Close() error {
	f.held.close()
	return nil
}

// within is a path of a name that goes by the folder's descriptor.
func (f *Folder) within(name string) string { return f.held.path() + "/" + name }

// Make opens a regular file for reading and writing, and makes it if there is none. A file with a
// second name may be another user's.
func (f *Folder) Make(name string, mode fs.FileMode) (*os.File, error) {
	fd, err := unix.Openat(f.held.fd, name, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, uint32(mode.Perm()))
	var st unix.Stat_t
	if err == nil {
		if err = unix.Fstat(fd, &st); err == nil {
			switch {
			case st.Mode&unix.S_IFMT != unix.S_IFREG:
				err = fmt.Errorf("not a regular file")
			case st.Nlink != 1:
				err = fmt.Errorf("a file with %d names", st.Nlink)
			}
		}
		if err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: f.at + name, Err: err}
	}
	return os.NewFile(uintptr(fd), f.at+name), nil
}

// Is returns the information of a name, and follows no link.
func (f *Folder) Is(name string) (fs.FileInfo, error) { return os.Lstat(f.within(name)) }

func (f *Folder) Remove(name string) error { return unix.Unlinkat(f.held.fd, name, 0) }

func (f *Folder) Rename(from, to string) error {
	return unix.Renameat(f.held.fd, from, f.held.fd, to)
}

// Socket is a socket of this process that has a name, before it listens.
type Socket struct {
	fd    int
	named found // the file, whatever has its name now
	at    string
}

// Bind makes a stream socket with a name in the folder.
func (f *Folder) Bind(name string) (*Socket, error) {
	fail := func(err error) (*Socket, error) {
		return nil, &fs.PathError{Op: "bind", Path: f.at + name, Err: err}
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fail(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: f.within(name)}); err != nil {
		unix.Close(fd)
		return fail(err)
	}
	file, err := fileOf(fd)
	if err != nil {
		unix.Close(fd)
		return fail(err)
	}
	return &Socket{fd, file, f.at + name}, nil
}

// fileOf is the file that a socket of this process is bound to, whatever has its name now
// (SIOCUNIXFILE of unix(7), with CAP_NET_ADMIN).
func fileOf(socket int) (found, error) {
	fd, err := unix.IoctlRetInt(socket, unix.SIOCPROTOPRIVATE)
	return found{fd: fd, kind: unix.S_IFSOCK}, err
}

func (f found) chmod(at string, mode fs.FileMode) error {
	if err := unix.Chmod(f.path(), uint32(mode.Perm())); err != nil {
		return &fs.PathError{Op: "chmod", Path: at, Err: err}
	}
	return nil
}

// Permit sets the permissions of the file that a listener is bound to.
func Permit(l *net.UnixListener, mode fs.FileMode) error {
	conn, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		var file found
		if file, failed = fileOf(int(fd)); failed == nil {
			defer file.close()
			failed = file.chmod(l.Addr().String(), mode)
		}
	})
	return errors.Join(err, failed)
}

// Chmod and Chown change the file of the socket, wherever it is now.
func (s *Socket) Chmod(mode fs.FileMode) error { return s.named.chmod(s.at, mode) }
func (s *Socket) Chown(uid, gid int) error {
	err := unix.Fchownat(s.named.fd, "", uid, gid, unix.AT_EMPTY_PATH)
	if err != nil {
		err = &fs.PathError{Op: "chown", Path: s.at, Err: err}
	}
	return err
}

// Stat returns the information of the file of the socket.
func (s *Socket) Stat() (fs.FileInfo, error) { return os.Stat(s.named.path()) }

// Listen listens, with a queue of so many connections. The socket is closed in either case.
func (s *Socket) Listen(most int) (*net.UnixListener, error) {
	defer s.Close()
	if err := unix.Listen(s.fd, most); err != nil {
		return nil, &fs.PathError{Op: "listen", Path: s.at, Err: err}
	}
	own, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "listen", Path: s.at, Err: err}
	}
	file := os.NewFile(uintptr(own), s.at)
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return nil, &fs.PathError{Op: "listen", Path: s.at, Err: err}
	}
	return l.(*net.UnixListener), nil
}

func (s *Socket) Close() error {
	s.named.close()
	return unix.Close(s.fd)
}

// Dial connects to the stream socket at an absolute path.
func Dial(ctx context.Context, at string) (net.Conn, error) {
	socket, err := find(at, false)
	if err == nil {
		defer socket.close()
		if socket.kind != unix.S_IFSOCK {
			err = fmt.Errorf("not a socket")
		}
	}
	if err != nil {
		return nil, &fs.PathError{Op: "connect", Path: at, Err: err}
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket.path())
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", at, err)
	}
	return conn, nil
}
