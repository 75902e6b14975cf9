// Package ownfile reads the files of a daemon's operator: configuration, keys and record. No file of a
// wrong kind makes the daemon wait, and its owner and permissions are those of the file that was read.
package ownfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// File is a file as it was read.
type File struct {
	Data []byte
	path string
	User int // that it belongs to
	Mode fs.FileMode
}

// most is above the bounds that config and schema have for the bytes of a file.
const most = 16 << 20

// Read reads a regular file, or a pipe such as a shell's <(command), until ctx ends: at most 16 MiB.
func Read(ctx context.Context, path string) (*File, error) { return read(ctx, path, most) }

func read(ctx context.Context, path string, most int64) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0) // a FIFO may have no writer
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	is := info.Mode()
	if !is.IsRegular() && !is.IsDir() && is&fs.ModeNamedPipe == 0 {
		return nil, fmt.Errorf("%s is neither a regular file nor a pipe", path)
	}
	stop := context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) }) // of a pipe
	defer stop()
	data, err := io.ReadAll(io.LimitReader(f, most))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("read %s: %w", path, ctx.Err())
	case errors.Is(err, unix.EAGAIN), err == nil && len(data) == 0 && !is.IsRegular():
		return nil, fmt.Errorf("%s is a pipe without a writer; want a regular file, or a pipe that a command writes to", path)
	case err != nil:
		return nil, err
	}
	file := of(path, info)
	file.Data = data
	return file, nil
}

// ReadRegular reads a regular file of any length.
func ReadRegular(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := read(context.Background(), path, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	return f.Data, nil
}

// Leak names how another user than root and this process's can use the keys in a file, and the command that
// ends it; empty: none can.
func (f *File) Leak() string {
	switch {
	case f.User != 0 && f.User != os.Geteuid():
		return fmt.Sprintf("it belongs to user %d and gives that user the keys: `chown %d %s`", f.User, os.Geteuid(), f.path)
	case f.Mode.Perm()&0o007 != 0:
		return fmt.Sprintf("mode %04o gives every user of this host the keys: `chmod 600 %s`", f.Mode.Perm(), f.path)
	}
	return ""
}

// Leak is that of the file that lies at a path now; a pipe is gone once it is read.
func Leak(path string) string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return of(path, info).Leak()
}

func of(path string, info fs.FileInfo) *File {
	return &File{path: path, User: int(info.Sys().(*syscall.Stat_t).Uid), Mode: info.Mode()}
}
