package ownfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds calls that must not wait.
const patience = 10 * time.Second

func put(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKinds: a file of a wrong kind is refused at once.
func TestKinds(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		put(t, "text", 0o600): "",
		fifo:                  "is a pipe without a writer",
		"/dev/zero":           "is neither a regular file nor a pipe",
		t.TempDir():           "is a directory",
		"/no/such":            "no such file",
	} {
		done := make(chan error)
		go func() {
			f, err := Read(context.Background(), path)
			if err == nil && string(f.Data) != "text" {
				err = fmt.Errorf("read %q", f.Data)
			}
			done <- err
		}()
		select {
		case err := <-done:
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %v, want %q", path, err, want)
			}
		case <-time.After(patience):
			t.Errorf("%s: it waits", path)
		}
	}
	if _, err := ReadRegular(fifo); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Error(err)
	}
	if data, err := ReadRegular(put(t, strings.Repeat("x", most+7), 0o600)); err != nil || len(data) != most+7 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

// TestPipe: all that is written to a pipe is read; a context ends the wait for a writer that does not end.
func TestPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	path := fmt.Sprintf("/proc/self/fd/%d", r.Fd())
	fmt.Fprint(w, "half")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := Read(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("a writer that does not end: %v", err)
	}
	go func() {
		fmt.Fprint(w, "whole")
		w.Close()
	}()
	if f, err := Read(t.Context(), path); err != nil || string(f.Data) != "whole" {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestLeak: the file that a link leads to counts, not the link.
func TestLeak(t *testing.T) {
	for _, c := range []struct {
		user int
		mode os.FileMode
		want string
	}{
		{0, 0o600, ""},
		{0, 0o640, ""},
		{0, 0o644, "mode 0644 gives every user of this host the keys: `chmod 600 PATH`"},
		{0, 0o602, "mode 0602 gives"},
		{1234, 0o600, "it belongs to user 1234 and gives that user the keys: `chown 0 PATH`"},
	} {
		path := put(t, "key", c.mode)
		if err := os.Chown(path, c.user, 0); err != nil {
			t.Fatal(err)
		}
		link := path + "-link"
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		f, err := Read(t.Context(), link)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(c.want, "PATH", link)
		for _, got := range []string{f.Leak(), Leak(link)} {
			if !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("user %d, mode %04o: %q, want %q", c.user, c.mode, got, want)
			}
		}
	}
}
