package daemon

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// watcher tells when files are other ones than before.
type watcher struct {
	changed chan os.Signal
	inotify *os.File
	ended   chan struct{}
}

// watchFiles watches the folders of files for events by which a file there is whole: it was closed after writing, or
// moved there, as by editors and ConfigMaps.
func watchFiles(paths ...string) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch files: %w", err)
	}
	w := &watcher{changed: make(chan os.Signal, 1), inotify: os.NewFile(uintptr(fd), "inotify"), ended: make(chan struct{})}
	for _, path := range paths {
		dir := filepath.Dir(path)
		if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO); err != nil && !errors.Is(err, unix.ENOENT) { // its reader says what is missing
			w.inotify.Close()
			return nil, fmt.Errorf("watch %s: %w", dir, err)
		}
	}
	go w.read(paths, sums(paths))
	return w, nil
}

func (w *watcher) read(paths []string, last [][32]byte) {
	defer close(w.ended)
	events := make([]byte, 64<<10)
	for {
		if _, err := w.inotify.Read(events); err != nil {
			return
		}
		now := sums(paths)
		if slices.Equal(now, last) {
			continue
		}
		last = now
		select {
		case w.changed <- unix.SIGHUP:
		default: // one before it waits
		}
	}
}

// sums are the digests of regular files; of any other the zero one.
func sums(paths []string) (all [][32]byte) {
	for _, path := range paths {
		var sum [32]byte
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			if data, err := os.ReadFile(path); err == nil {
				sum = sha256.Sum256(data)
			}
		}
		all = append(all, sum)
	}
	return all
}

// Close ends the watch.
func (w *watcher) Close() {
	w.inotify.Close()
	<-w.ended
}
