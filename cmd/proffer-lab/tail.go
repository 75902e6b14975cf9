package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"proffer/cmd/internal/cli"
	"proffer/dataplane"
	"proffer/lab/farmrun"
	"proffer/lab/tables"
)

// finding is the result of a measurement: it can be shown and saved, and has a verdict.
type finding interface {
	JSON() any
	Print(io.Writer) error
	Files() []tables.File
	Holds() error // the requirement that it did not meet
}

// tail is what all verbs that measure do: from flags that can be run to progress, result, files and
// verdict.
type tail struct {
	kept
	json bool
	out  string
	of   string // what made all that is removed

	programs string // path of the proffer binary
	alone    bool   // there is no need of it
}

// measure is a verb's own part.
type measure func(ctx context.Context, show *progress) (finding, error)

// run checks the flags, measures, and reports.
func (t *tail) run(cmd *cobra.Command, check func() error, measure measure) error {
	if err := check(); err != nil {
		return cli.BadUsage(err)
	}
	if err := t.open(); err != nil {
		return cli.BadUsage(err)
	}
	if err := dataplane.Preflight(); err != nil {
		return err
	}
	if !t.alone {
		var err error
		if t.programs, err = findProffer(); err != nil {
			return err
		}
	}
	if t.out != "" {
		if err := writable(t.out); err != nil {
			return err
		}
	}
	show := newProgress(cmd.ErrOrStderr())
	found, err := measure(cmd.Context(), show)
	show.end()
	switch {
	case cmd.Context().Err() != nil:
		return fmt.Errorf("interrupted; everything the %s made is removed", t.of)
	case err != nil:
		return err
	}
	return errors.Join(t.report(cmd, found), found.Holds())
}

// report prints the result, and then writes its files if there is a folder for them: a full disk costs
// the files, not the result.
func (t *tail) report(cmd *cobra.Command, found finding) (err error) {
	record := tables.Record(cmd.OutOrStdout())
	if t.json {
		record.Writer = io.Discard
		err = tables.JSON(cmd.OutOrStdout(), found.JSON())
	}
	if !t.json || t.file != nil {
		err = errors.Join(err, found.Print(record))
	}
	err = errors.Join(err, t.keep(cmd, packagesOf(found, !t.alone), record.Parts(), found.Holds()))
	if t.out == "" {
		return err
	}
	return errors.Join(err, saveFiles(cmd.ErrOrStderr(), t.out, found.Files()...))
}

// saveFiles writes files and names them.
func saveFiles(log io.Writer, dir string, files ...tables.File) error {
	paths, err := tables.Save(dir, files...)
	if len(paths) > 0 {
		fmt.Fprintf(log, "written: %s\n", strings.Join(paths, " "))
	}
	return err
}

// writable fails early rather than after minutes of measuring.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--out %s: cannot be made: %w", dir, err)
	}
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return fmt.Errorf("--out %s: cannot be written to: %w", dir, err)
	}
	f.Close()
	return os.Remove(filepath.Join(dir, filepath.Base(f.Name())))
}

// stepLine is the line of progress, and whether it is the last.
func stepLine(s farmrun.Step) (string, bool) {
	return fmt.Sprintf("[%d/%d] %s, %s left", s.Done, s.Total, s.Doing, farmrun.Left(s.Left)), s.Done == s.Total
}

// findProffer returns the path of the program that experiments run as daemons:
// that beside this one, so that both are of one build, or else that in $PATH.
func findProffer() (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return profferBeside(filepath.Dir(own))
}

func profferBeside(dir string) (string, error) {
	// LookPath of a path with a slash only checks that it can be run.
	if beside, err := exec.LookPath(filepath.Join(dir, "proffer")); err == nil {
		return beside, nil
	}
	path, err := exec.LookPath("proffer")
	if err != nil {
		return "", fmt.Errorf("the program proffer, which has the daemons, is neither in %s nor in $PATH: `make build` puts both programs into build/", dir)
	}
	return path, nil
}

// progress shows one line that renews itself at a terminal, and now and then a
// line elsewhere.
type progress struct {
	w     io.Writer
	live  bool
	last  time.Time
	every time.Duration
	shown string
	wide  int
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, every: 5 * time.Second}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.live, p.every = true, 100*time.Millisecond
	}
	return p
}

// update shows the line unless it stands there or that before is too fresh; the
// last line always.
func (p *progress) update(line string, last bool) {
	if line == p.shown || time.Since(p.last) < p.every && !last {
		return
	}
	p.last, p.shown = time.Now(), line
	if !p.live {
		fmt.Fprintln(p.w, line)
		return
	}
	fmt.Fprintf(p.w, "\r%-*s", p.wide, line)
	p.wide = len(line)
}

// end leaves the line.
func (p *progress) end() {
	if p.live && p.wide > 0 {
		fmt.Fprintln(p.w)
	}
}
