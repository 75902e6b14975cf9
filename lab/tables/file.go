package tables

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// File writes a file of a result, or the files of a picture, into a folder that exists, and returns
// their paths.
type File func(dir string) ([]string, error)

// Save makes the folder and writes all files that can be written.
func Save(dir string, files ...File) (paths []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the output folder: %w", err)
	}
	for _, file := range files {
		more, failed := file(dir)
		paths, err = append(paths, more...), errors.Join(err, failed)
	}
	return paths, err
}

// Written is a file of a name with what write writes.
func Written(name string, write func(io.Writer) error) File {
	return func(dir string) ([]string, error) {
		path := filepath.Join(dir, name)
		var data bytes.Buffer
		err := write(&data)
		if err == nil {
			err = os.WriteFile(path, data.Bytes(), 0o644)
		}
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
		return []string{path}, nil
	}
}

// CSVFile is the table as a file of a name.
func (t *Table) CSVFile(name string) File { return Written(name, t.CSV) }

// JSONFile is a value as a file of a name.
func JSONFile(name string, value any) File {
	return Written(name, func(w io.Writer) error { return JSON(w, value) })
}

// JSON writes a value for readers and programs.
func JSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

// Kept are files that were written before, and why others were not.
func Kept(paths []string, unkept error) File {
	return func(string) ([]string, error) { return paths, unkept }
}
