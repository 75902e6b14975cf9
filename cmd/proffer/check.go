package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"proffer/farm"
	"proffer/ownfile"
	"proffer/schema"
)

const ofFarm = "a farm's file, or - for stdin"

func newCheck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check FILE [--json]",
		Short: "Find every mistake of a farm's file",
		Long: `Reads FILE, a farm's, and prints every mistake at once, a line each: file, line,
column, key, and the accepted values. What is no mistake but seldom meant, such as
a service without a server, is a warning. FILE - is stdin. It needs no daemon and
no root.

--json prints one JSON object: file, farm, version, ok, and of each mistake and
warning line, column, key and problem.

Exit codes: 0 FILE can be used, 1 it has a mistake, 2 wrong usage.
docs/operate/farm-file.md describes FILE.`,
		Example: "  proffer check /etc/proffer/farm.yaml",
		Args:    oneFile(ofFarm),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, data, err := readFarm(cmd.Context(), cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			return checked(cmd.OutOrStdout(), name, data, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// readFarm reads a farm's file, or stdin.
func readFarm(ctx context.Context, stdin io.Reader, path string) (name string, data []byte, err error) {
	if path == "-" {
		const most = 16 << 20 // above the bound of package schema
		data, err = io.ReadAll(io.LimitReader(stdin, most))
		return "stdin", data, err
	}
	f, err := ownfile.Read(ctx, path)
	if err != nil {
		return path, nil, fmt.Errorf("read the farm: %w", err)
	}
	return path, f.Data, nil
}

// checked prints what is wrong with a farm's file.
func checked(out io.Writer, name string, data []byte, asJSON bool) error {
	f, warnings, err := farm.Parse(name, data)
	mistakes := mistakesOf(err)
	if asJSON {
		if err := printCheck(out, name, f, mistakes, warnings); err != nil {
			return err
		}
	} else {
		for _, m := range mistakes {
			fmt.Fprintln(out, m)
		}
		for _, w := range warnings {
			fmt.Fprintf(out, "%s:%d:%d: warning: %s %s\n", w.File, w.Line, w.Column, w.Key, w.Problem)
		}
	}
	switch {
	case len(mistakes) == 1:
		return fmt.Errorf("%s has a mistake", name)
	case len(mistakes) > 1:
		return fmt.Errorf("%s has %d mistakes", name, len(mistakes))
	case !asJSON:
		fmt.Fprintf(out, "%s: farm %s, version %d, can be used: %s\n", name, f.Name, f.Version, f.Count())
	}
	return nil
}

// mistakesOf are the parts of the error of a file.
func mistakesOf(err error) (all []error) {
	if joined, is := err.(interface{ Unwrap() []error }); is {
		return joined.Unwrap()
	}
	if err != nil {
		all = append(all, err)
	}
	return all
}

// said is a mistake or a warning as JSON has it.
type said struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Key     string `json:"key"`
	Problem string `json:"problem"`
}

func printCheck(out io.Writer, name string, f *farm.Farm, mistakes []error, warnings []*schema.Error) error {
	answer := struct {
		File     string `json:"file"`
		Farm     string `json:"farm,omitempty"`
		Version  int    `json:"version"`
		OK       bool   `json:"ok"`
		Mistakes []said `json:"mistakes"`
		Warnings []said `json:"warnings"`
	}{File: name, OK: len(mistakes) == 0, Mistakes: []said{}, Warnings: []said{}}
	if f != nil {
		answer.Farm, answer.Version = f.Name, f.Version
	}
	for _, m := range mistakes {
		at := &schema.Error{Problem: m.Error()}
		errors.As(m, &at)
		answer.Mistakes = append(answer.Mistakes, said{at.Line, at.Column, at.Key, at.Problem})
	}
	for _, w := range warnings {
		answer.Warnings = append(answer.Warnings, said{w.Line, w.Column, w.Key, w.Problem})
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(answer)
}
