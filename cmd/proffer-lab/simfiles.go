package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"proffer/cmd/internal/cli"
	"proffer/lab/sim"
	"proffer/lab/study"
)

// simFiles are the CSV files that a simulation writes besides its rows. They
// appear under their names only when they are complete.
type simFiles struct{ cdf, log *draft }

// draft is a file that is not complete yet.
type draft struct {
	*os.File
	path string
}

func newDraft(path string) (*draft, error) {
	file, err := os.CreateTemp(filepath.Dir(path), ".proffer-*")
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return &draft{file, path}, nil
}

// discard removes files that were not kept.
func (d *draft) discard() {
	if d != nil {
		d.Close()
		os.Remove(d.Name())
	}
}

func (d *draft) keep() error {
	err := errors.Join(d.Chmod(0o644), d.Close())
	if err == nil {
		err = os.Rename(d.Name(), d.path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", d.path, err)
	}
	return nil
}

// files opens the files that the flags ask for, before anything runs, and lets
// the study write its log.
func (f *simFlags) files(s *study.Study) (files simFiles, err error) {
	if f.cdf != "" {
		if files.cdf, err = newDraft(f.cdf); err != nil {
			return files, err
		}
	}
	if f.log == "" {
		return files, nil
	}
	if files.log, err = newDraft(f.log); err != nil {
		return files, err
	}
	log, err := study.NewLog(files.log, s.Setting.Farm)
	s.Each = func(l study.Load, p sim.Policy, r sim.Result) error {
		if err := log.Add(l, p, r); err != nil {
			return fmt.Errorf("write %s: %w", f.log, err)
		}
		return nil
	}
	return files, err
}

func (files simFiles) discard() {
	files.cdf.discard()
	files.log.discard()
}

// keep completes the files and names them.
func (files simFiles) keep(log io.Writer, rows []study.Row) error {
	if files.cdf != nil {
		if err := study.CDF(rows).CSV(files.cdf); err != nil {
			return fmt.Errorf("write %s: %w", files.cdf.path, err)
		}
	}
	for _, d := range []*draft{files.cdf, files.log} {
		if d == nil {
			continue
		}
		if err := d.keep(); err != nil {
			return err
		}
		fmt.Fprintf(log, "written: %s\n", d.path)
	}
	return nil
}

// checkOutput refuses names that no file or column can be made of.
func (f *simFlags) checkOutput() error {
	for i, p := range f.percentiles {
		switch {
		case !(p > 0 && p <= 100):
			return cli.BadUsagef("--percentiles %v: want more than 0, at most 100", p)
		case slices.Contains(f.percentiles[:i], p):
			return cli.BadUsagef("--percentiles: %v stands there twice", p)
		}
	}
	if f.cdf != "" && filepath.Clean(f.cdf) == filepath.Clean(f.log) {
		return cli.BadUsagef("--cdf and --request-log: want two files, got %s for both", f.cdf)
	}
	return nil
}
