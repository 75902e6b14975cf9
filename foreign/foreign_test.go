package foreign

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const application = 65534 // the user of a program without privileges

// patience bounds a call that must not wait.
const patience = 20 * time.Second

// owned is a folder of the application's, in one of root's that every user can enter.
func owned(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for at := dir; at != "/"; at = filepath.Dir(at) {
		if info, err := os.Stat(at); err == nil && info.Mode()&0o005 != 0o005 {
			if err := os.Chmod(at, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	own := filepath.Join(dir, "own")
	if err := errors.Join(os.Mkdir(own, 0o755), os.Chown(own, application, application)); err != nil {
		t.Fatal(err)
	}
	return own
}

func put(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// link makes a symbolic link of a user's.
func link(t *testing.T, target, path string, user int) string {
	t.Helper()
	if err := errors.Join(os.Symlink(target, path), os.Lchown(path, user, user)); err != nil {
		t.Fatal(err)
	}
	return path
}

// within fails the test if a call waits.
func within(t *testing.T, label string, call func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s waits", label)
	}
}

func TestReadFile(t *testing.T) {
	own := owned(t)
	good := put(t, filepath.Join(own, "good"), "7\n")
	fifo := filepath.Join(own, "fifo")
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	device := filepath.Join(own, "device")
	if err := unix.Mknod(device, unix.S_IFCHR|0o666, int(unix.Mkdev(5, 0))); err != nil {
		t.Fatal(err)
	}
	sparse := put(t, filepath.Join(own, "sparse"), "")
	if err := os.Truncate(sparse, 1<<40); err != nil {
		t.Fatal(err)
	}
	link(t, own, own+"-by-root", 0)
	for path, want := range map[string]string{
		good: "",
		link(t, good, filepath.Join(own, "root's"), 0):                         "",
		link(t, "../own/good", filepath.Join(own, "near"), 0):                  "",
		own + "-by-root/good":                                                  "",
		own + "/../own//good":                                                  "",
		link(t, good, filepath.Join(own, "foreign"), application):              "a symbolic link of user 65534, which is not followed",
		link(t, filepath.Join(own, "foreign"), filepath.Join(own, "twice"), 0): "a symbolic link of user 65534",
		link(t, "loop", filepath.Join(own, "loop"), 0):                         "too many levels",
		link(t, "none", filepath.Join(own, "dangling"), 0):                     "no such file",
		fifo:                     "not a regular file",
		device:                   "not a regular file",
		own:                      "not a regular file",
		good + "/below":          "not a directory",
		sparse:                   "longer than 100 bytes",
		"/proc/self/root" + good: "a link of a process in /proc",
		"/proc/self/fd/0":        "",
		"own/good":               "not an absolute path",
		own + "/a\x00b":          "invalid argument",
	} {
		within(t, path, func() {
			text, err := ReadFile(path, 100)
			switch {
			case path == "/proc/self/fd/0": // whatever it is: a result, at once
			case want == "" && (err != nil || string(text) != "7\n"):
				t.Errorf("%s: %q, %v", path, text, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path)):
				t.Errorf("%s: %q, %v; want an error with %q", path, text, err, want)
			}
		})
	}
}

// TestFolderOfTheApplication: whatever an application puts in the place of a name, no file of another
// user is opened, made or changed.
func TestFolderOfTheApplication(t *testing.T) {
	own := owned(t)
	precious := put(t, filepath.Join(filepath.Dir(own), "precious"), "")
	link(t, filepath.Dir(own), filepath.Join(own, "away"), application)
	if f, _, err := OpenFolder(filepath.Join(own, "away", "page")); err == nil {
		f.Close()
		t.Error("a link of the application's leads out of its folder")
	}
	f, name, err := OpenFolder(filepath.Join(own, "new", "deep", "page"))
	if err != nil || name != "page" {
		t.Fatal(name, err)
	}
	defer f.Close()
	deep := filepath.Join(own, "new", "deep")
	for label, prepare := range map[string]func(path string) error{
		"a link":        func(path string) error { return os.Symlink(precious, path) },
		"a second name": func(path string) error { return os.Link(precious, path) },
		"a folder":      func(path string) error { return os.Mkdir(path, 0o755) },
		"a FIFO":        func(path string) error { return unix.Mkfifo(path, 0o666) },
	} {
		at := filepath.Join(deep, "page")
		if err := prepare(at); err != nil {
			t.Fatal(err)
		}
		within(t, label, func() {
			if file, err := f.Make(name, 0o660); err == nil {
				file.Close()
				t.Errorf("%s was opened", label)
			}
		})
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
	}
	file, err := f.Make(name, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	if info, err := os.Stat(filepath.Join(deep, "page")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestSocketSwapped: the mode and the owner go to the socket that was made, though another file has
// its name by then.
func TestSocketSwapped(t *testing.T) {
	own := owned(t)
	precious := put(t, filepath.Join(filepath.Dir(own), "precious"), "")
	at := filepath.Join(own, "s")
	f, name, err := OpenFolder(at)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := f.Bind(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(at, at+".moved"), os.Symlink(precious, at)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Chmod(0o666), s.Chown(application, application)); err != nil {
		t.Error(err)
	}
	l, err := s.Listen(1)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := func(path string, mode fs.FileMode, uid uint32) {
		t.Helper()
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != mode || st.Uid != uid {
			t.Errorf("%s: mode %v of user %d, want %v of %d", path, info.Mode(), st.Uid, mode, uid)
		}
	}
	want(precious, 0o600, 0)
	want(at+".moved", 0o666, application)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := Dial(ctx, at+".moved")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if conn, err := Dial(ctx, at); err == nil {
		conn.Close()
		t.Error("a file is dialled")
	}
	link(t, at+".moved", filepath.Join(own, "foreign"), application)
	if conn, err := Dial(ctx, filepath.Join(own, "foreign")); err == nil {
		conn.Close()
		t.Error("a link of the application's is followed")
	}
}

// TestOpenNamespace: a namespace is opened by any link, and nothing else is.
func TestOpenNamespace(t *testing.T) {
	own := owned(t)
	fifo := filepath.Join(own, "fifo")
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	var st, want unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &want); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/proc/self/ns/net", link(t, "/proc/self/ns/net", filepath.Join(own, "web"), application)} {
		f, err := OpenNamespace(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Ino != want.Ino {
			t.Errorf("%s: namespace %d, %v, want %d", path, st.Ino, err, want.Ino)
		}
		f.Close()
	}
	for _, path := range []string{fifo, own, put(t, filepath.Join(own, "file"), ""), "/dev/zero", filepath.Join(own, "none")} {
		within(t, path, func() {
			if f, err := OpenNamespace(path); err == nil || !strings.Contains(err.Error(), path) {
				f.Close()
				t.Errorf("%s: %v", path, err)
			}
		})
	}
}
