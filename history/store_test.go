package history

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// readOnly makes a folder read-only until the test ends, for root, too.
func readOnly(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
}

func only(t *testing.T, dir string, names ...string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range all {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("the folder has %q, want %q", got, names)
	}
}

// TestUnchanged: a file that has the record already stays as it is, and nothing is left beside it.
func TestUnchanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lb.json")
	r := (&Record{}).Next(serving(7, 1, 1), at(0), keep)
	s, _, err := Open(path, "lb", at(0))
	if err == nil {
		err = s.Write(r)
	}
	if err != nil {
		t.Fatal(err)
	}
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(r); err != nil {
		t.Fatal(err)
	}
	if is, err := os.Stat(path); err != nil || !os.SameFile(was, is) {
		t.Errorf("the file was written again, %v", err)
	}
	only(t, filepath.Dir(path), "lb.json")
	readOnly(t, filepath.Dir(path))
	s.Close()
	s, got, err := Open(path, "lb", at(0))
	if err != nil || !got.Equal(r) {
		t.Fatalf("from a disk that is read-only: %v", err)
	}
	if err := s.Write(r); !errors.Is(err, unix.EROFS) {
		t.Errorf("the record again: %v", err)
	}
}

// TestForeign: the record of another LB that runs, or of another farm, is neither read nor written.
func TestForeign(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lb.json")
	r := (&Record{}).Next(serving(7, 1, 1), at(0), keep)
	first, _, err := Open(path, "lb one", at(0))
	if err != nil {
		t.Fatal(err)
	}
	early, _, err := Open(path, "lb two", at(0)) // there is no file yet
	if err == nil {
		err = first.Write(r)
	}
	if err != nil {
		t.Fatal(err)
	}
	foreign := func(label string, err error, part string) {
		t.Helper()
		var f *Foreign
		if !errors.As(err, &f) || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), "`state`") {
			t.Errorf("%s: %v, want %q", label, err, part)
		}
	}
	foreign("made meanwhile", early.Write(&Record{}), "an LB of this host that runs has it")
	second, got, err := Open(path, "lb one", at(0))
	foreign("it runs", err, "an LB of this host that runs has it")
	if len(got.services) > 0 {
		t.Error("its pools are adopted")
	}
	foreign("it runs, write", second.Write(&Record{}), "an LB of this host that runs has it")
	if err := first.Write(r.Next(serving(8, 1, 0), at(1), keep)); err != nil {
		t.Fatal(err)
	}
	_, _, err = Open(path, "lb one", at(0))
	foreign("it runs, the file is another", err, "an LB of this host that runs has it")
	first.Close()
	second, got, err = Open(path, "lb two", at(0))
	foreign("it has ended", err, "of lb one, and this is lb two")
	if len(got.services) > 0 {
		t.Error("its pools are adopted")
	}
	foreign("it has ended, write", second.Write(&Record{}), "of lb one, and this is lb two")
	foreign("made meanwhile, and it has ended", early.Write(&Record{}), "of lb one")
	again, got, err := Open(path, "lb one", at(0))
	if err != nil || got.Past(web) != 1 {
		t.Errorf("its own: %v", err)
	}
	again.Close()
}
