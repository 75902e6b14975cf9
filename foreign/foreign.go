// Package foreign opens files and sockets at paths that another user may change, and makes foreign
// text printable.
//
// An application may own the folder of its load page, its PID file or its socket. There any name may
// be a FIFO, a device, a directory or a symbolic link at the next call. So a path is looked up once,
// name by name, and all that follows goes by descriptor: Opening waits for no writer and opens no
// device, a change of owner or permissions reaches the file that was opened and no other, and a
// symbolic link is followed only if root or the user of this process made it.
package foreign

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// mostLinks bounds the symbolic links of a path, as the kernel does.
const mostLinks = 40

// Open opens the regular file at an absolute path for reading.
func Open(at string) (*os.File, error) {
	f, err := reopen(at, unix.S_IFREG, "a regular file", unix.O_RDONLY)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: at, Err: err}
	}
	return f, nil
}

// ReadFile reads the regular file at an absolute path, which has at most so many bytes.
func ReadFile(at string, most int64) ([]byte, error) {
	f, err := Open(at)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = &fs.PathError{Op: "read", Path: at, Err: fmt.Errorf("longer than %d bytes", most)}
	}
	return b, err
}

// OpenNamespace opens the namespace at a path, such as /run/netns/NAME or /proc/PID/ns/net. It follows
// every link: a namespace is entered, or asked for its number, and never changed.
func OpenNamespace(at string) (*os.File, error) {
	fail := func(err error) (*os.File, error) { return nil, &fs.PathError{Op: "open", Path: at, Err: err} }
	fd, err := unix.Open(at, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	held := found{fd: fd}
	defer held.close()
	var in unix.Statfs_t
	if err := unix.Fstatfs(fd, &in); err != nil {
		return fail(err)
	}
	if in.Type != unix.NSFS_MAGIC {
		return fail(fmt.Errorf("not a namespace"))
	}
	if fd, err = unix.Open(held.path(), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return fail(err)
	}
	return os.NewFile(uintptr(fd), at), nil
}

// reopen finds the file at a path and opens it if it is of a kind.
func reopen(at string, kind uint32, name string, flags int) (*os.File, error) {
	found, err := find(at, false)
	if err != nil {
		return nil, err
	}
	defer found.close()
	if found.kind != kind {
		return nil, fmt.Errorf("not %s", name)
	}
	fd, err := unix.Open(found.path(), flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), at), nil
}

// found is a file that is held by its descriptor, and was not opened (O_PATH).
type found struct {
	fd   int
	kind uint32 // S_IFREG …
	uid  uint32
}

func (f found) close() { unix.Close(f.fd) }

// path is another path of the file, as long as it is held (proc_pid_fd(5)).
func (f found) path() string { return fmt.Sprintf("/proc/self/fd/%d", f.fd) }

// find looks an absolute path up, name by name, and makes its missing folders if that is asked for.
func find(at string, makes bool) (found, error) {
	for range mostLinks {
		f, next, err := walk(path.Clean(at), makes)
		if err != nil || next == "" {
			return f, err
		}
		at = next
	}
	return found{}, unix.ELOOP
}

// walk goes down a path. At a symbolic link it returns the path behind it.
func walk(at string, makes bool) (here found, next string, err error) {
	if !path.IsAbs(at) {
		return found{}, "", fmt.Errorf("%w: not an absolute path", unix.EINVAL)
	}
	if here, err = hold(unix.AT_FDCWD, "/"); err != nil {
		return here, "", err
	}
	names := strings.FieldsFunc(at, func(r rune) bool { return r == '/' })
	for i, name := range names {
		above := here
		here, err = hold(above.fd, name)
		if makes && err == unix.ENOENT {
			if err = unix.Mkdirat(above.fd, name, 0o755); err == nil || err == unix.EEXIST {
				here, err = hold(above.fd, name)
			}
		}
		above.close()
		if err != nil {
			return found{}, "", err
		}
		if here.kind == unix.S_IFLNK {
			defer here.close()
			target, err := here.target("/" + path.Join(names[:i+1]...))
			return found{}, path.Join(target, path.Join(names[i+1:]...)), err
		}
	}
	return here, "", nil
}

// hold finds a name in a folder, and follows no link. A name below a file that is no folder is an
// error of the kernel's.
func hold(folder int, name string) (found, error) {
	fd, err := unix.Openat(folder, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return found{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return found{}, err
	}
	return found{fd, st.Mode & unix.S_IFMT, st.Uid}, nil
}

// target is the path that the symbolic link at a path leads to. The links of /proc that lead to an open
// file or to another root have a text that is no path.
func (f found) target(at string) (string, error) {
	if f.uid != 0 && int(f.uid) != os.Geteuid() {
		return "", fmt.Errorf("%s is a symbolic link of user %d, which is not followed: name the path behind it", at, f.uid)
	}
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(f.fd, "", b)
	if err != nil {
		return "", err
	}
	to := string(b[:n])
	var in unix.Statfs_t
	if err := unix.Fstatfs(f.fd, &in); err != nil {
		return "", err
	}
	if in.Type == unix.PROC_SUPER_MAGIC && (path.IsAbs(to) || strings.Contains(to, ":[")) {
		return "", fmt.Errorf("%s is a link of a process in /proc, which is not followed: name the path behind it", at)
	}
	if path.IsAbs(to) {
		return to, nil
	}
	return path.Join(path.Dir(at), to), nil
}
