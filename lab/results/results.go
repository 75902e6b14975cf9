// Package results keeps measurements as data: a file a command in the folder results, from which the
// pages of docs/evidence are rendered, and which is stale once the packages that were measured differ.
package results

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"proffer/lab/tables"
)

// Result is a command's result. Each number is as the command printed it.
type Result struct {
	Command string `json:"command"`
	Commit  string `json:"commit"` // that the command was built from; empty: not recorded
	Date    string `json:"date"`   // in UTC; empty: not recorded
	Machine string `json:"machine"`
	Inputs  Inputs `json:"inputs"`
	Missed  string `json:"missed,omitempty"` // the requirements that it did not meet

	Parts []tables.Part `json:"parts"`
}

// Inputs are the packages that a result is of, as `go list` names them (with - before a package by which
// nothing is of it), and the hash of them and of all
// packages that they import, with the eBPF objects embedded there. Without a hash it was not recorded.
type Inputs struct {
	Packages []string `json:"packages,omitempty"`
	Hash     string   `json:"hash,omitempty"`
}

// Read reads a result.
func Read(path string) (*Result, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	decoder.DisallowUnknownFields()
	r := &Result{}
	if err := decoder.Decode(r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// check refuses what no page could show.
func (r *Result) check() error {
	if r.Command == "" || r.Machine == "" || len(r.Parts) == 0 {
		return fmt.Errorf("command, machine or parts are missing")
	}
	if _, err := time.Parse(time.DateOnly, r.Date); err != nil && r.Date != "" {
		return fmt.Errorf("date: %w", err)
	}
	for i, p := range r.Parts {
		for k, row := range p.Rows {
			if len(row) > len(p.Columns) && len(p.Columns) > 0 {
				return fmt.Errorf("part %d, row %d: %d cells under %d columns", i+1, k+1, len(row), len(p.Columns))
			}
		}
	}
	return nil
}

// Write writes a result, a line a row.
func (r *Result) Write(path string) error {
	var out bytes.Buffer
	head := *r
	head.Parts = nil
	data, err := json.MarshalIndent(head, "", "  ")
	if err != nil {
		return err
	}
	out.Write(bytes.TrimSuffix(data, []byte("null\n}")))
	out.WriteString("[")
	for i, p := range r.Parts {
		if err := part(&out, p); err != nil {
			return err
		}
		if i < len(r.Parts)-1 {
			out.WriteString(",")
		}
	}
	out.WriteString("\n  ]\n}\n")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// part writes a part with a line a row.
func part(out *bytes.Buffer, p tables.Part) error {
	text, err := line(p.Text)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n    {\n      \"text\": %s", text)
	for _, list := range []struct {
		name string
		of   int
		at   func(int) any
	}{{"columns", len(p.Columns), func(i int) any { return p.Columns[i] }}, {"rows", len(p.Rows), func(i int) any { return numbers(p.Rows[i]) }}} {
		if list.of == 0 {
			continue
		}
		fmt.Fprintf(out, ",\n      %q: [", list.name)
		for i := range list.of {
			text, err := line(list.at(i))
			if err != nil {
				return err
			}
			separator := ","
			if i == 0 {
				separator = ""
			}
			fmt.Fprintf(out, "%s\n        %s", separator, text)
		}
		out.WriteString("\n      ]")
	}
	out.WriteString("\n    }")
	return nil
}

// line is a value in a line, with < and & as they are.
func line(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSpace(out.Bytes()), err
}

// numbers are cells, those that JSON reads as a number being one, with all their digits.
func numbers(row []any) []any {
	cells := make([]any, len(row))
	for i, cell := range row {
		cells[i] = cell
		var number json.Number
		if text, is := cell.(string); is && text != "" && text[0] != '"' && json.Unmarshal([]byte(text), &number) == nil && number.String() == text {
			cells[i] = number
		}
	}
	return cells
}

// List is a row a result of the tree at root: which are stale.
func List(root string) (*tables.Table, error) {
	paths, err := filepath.Glob(filepath.Join(root, "results", "*.json"))
	if err != nil {
		return nil, err
	}
	hashes := map[string]string{}
	hash := func(root string, packages []string) (_ string, err error) {
		key := strings.Join(packages, " ")
		if hashes[key] == "" {
			hashes[key], err = Hash(root, packages)
		}
		return hashes[key], err
	}
	t := tables.Left("result", "date", "commit", "state", "command")
	for _, path := range paths {
		r, err := Read(path)
		if err != nil {
			return nil, err
		}
		state, err := r.Stale(root, hash)
		if err != nil {
			state = "stale: " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		if state == "" {
			state = "as today"
		}
		t.Add(strings.TrimSuffix(filepath.Base(path), ".json"), orUnknown(r.Date), orUnknown(r.Commit), state, r.Command)
	}
	return t, nil
}

func orUnknown(text string) string {
	if text == "" {
		return "?"
	}
	return text
}
