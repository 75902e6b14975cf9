package results

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"proffer/lab/tables"
)

// File is a result's file before there is a result.
type File struct {
	path, root string
	commit     string
}

// fileName is what a page can name.
var fileName = regexp.MustCompile(`^[a-z0-9-]+\.json$`)

// Open makes sure, before anything is measured, that a result can be kept: in a clone, by a build of a
// commit, without changes.
func Open(path, commit string, clean bool) (*File, error) {
	f := &File{path: path, commit: commit}
	var err error
	switch f.root, err = Root(filepath.Dir(path)); {
	case err != nil:
		return nil, err
	case !fileName.MatchString(filepath.Base(path)):
		return nil, fmt.Errorf("%s: want a name of small letters, digits and -, with .json", path)
	case commit == "" || !clean:
		return nil, fmt.Errorf("this build is of no commit: commit all changes, then `make build`")
	}
	if _, err := command(f.root, "git", "cat-file", "-e", commit+"^{commit}"); err != nil {
		return nil, fmt.Errorf("this build is of commit %.12s, which is not in %s", commit, f.root)
	}
	_, err = command(f.root, "go", "version")
	return f, err
}

// Keep writes what a command printed; missed: the requirements that it did not meet.
func (f *File) Keep(of string, packages []string, parts []tables.Part, missed error) error {
	differ, err := changed(f.root, f.commit, packages)
	if err != nil {
		return err
	}
	if len(differ) > 0 {
		return fmt.Errorf("%s is not written: this build is of commit %.12s, and %s differs since: commit, then `make build`", f.path, f.commit, differ[0])
	}
	hash, err := Hash(f.root, packages)
	if err != nil {
		return err
	}
	short, err := command(f.root, "git", "rev-parse", "--short", f.commit)
	if err != nil {
		return err
	}
	r := &Result{
		Command: of, Commit: strings.TrimSpace(string(short)), Date: time.Now().UTC().Format(time.DateOnly), Machine: machine(),
		Inputs: Inputs{Packages: packages, Hash: hash}, Parts: parts,
	}
	if missed != nil {
		r.Missed = missed.Error()
	}
	return r.Write(f.path)
}

// machine is this machine in words.
func machine() string {
	processor := "processors"
	data, err := os.ReadFile("/proc/cpuinfo")
	if m := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindSubmatch(data); err == nil && m != nil {
		processor = strings.Join(strings.Fields(string(m[1])), " ")
	}
	words := fmt.Sprintf("%d × %s", runtime.NumCPU(), processor)
	var kernel unix.Utsname
	if unix.Uname(&kernel) == nil {
		words += ", Linux " + unix.ByteSliceToString(kernel.Release[:])
	}
	return words
}
