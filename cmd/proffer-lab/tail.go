package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

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
