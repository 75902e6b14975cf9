package main

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"proffer/cmd/internal/cli"
	"proffer/lab/results"
	"proffer/lab/tables"
)

// kept is the flag --result, and the file behind it; nil: none is wanted.
type kept struct {
	path string
	file *results.File
}

func (k *kept) flag(flags *pflag.FlagSet) {
	flags.StringVar(&k.path, "result", "", "keep what is printed as data in `results/NAME.json` of a clone, from which docs/evidence is rendered")
}

// open makes sure that the file can be written, before anything is measured.
func (k *kept) open() (err error) {
	if k.path == "" {
		return nil
	}
	commit, clean := cli.Commit()
	if k.file, err = results.Open(k.path, commit, clean); err != nil {
		return fmt.Errorf("--result: %w", err)
	}
	return nil
}

// keep writes the file.
func (k *kept) keep(cmd *cobra.Command, packages []string, parts []tables.Part, missed error) error {
	if k.file == nil {
		return nil
	}
	if err := k.file.Keep(commandLine(cmd), packages, parts, missed); err != nil {
		return fmt.Errorf("--result: %w", err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "written: %s\n", k.path)
	return nil
}

// elsewhere are the flags that change where a result goes, and not the result.
var elsewhere = map[string]bool{"result": true, "out": true, "json": true, "csv": true}

// plain is a word that a shell reads as it stands.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:,=+%@-]+$`)

// commandLine is the command as it was called, without the flags that are elsewhere.
func commandLine(cmd *cobra.Command) string {
	words := append([]string{cmd.CommandPath()}, cmd.Flags().Args()...)
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if elsewhere[f.Name] {
			return
		}
		value := f.Value.String()
		if list, is := f.Value.(pflag.SliceValue); is {
			value = strings.Join(list.GetSlice(), ",")
			if f.Value.Type() == "float64Slice" {
				value = strings.Join(short(list.GetSlice()), ",")
			}
		}
		switch {
		case f.Value.Type() == "bool" && value == "true":
			words = append(words, "--"+f.Name)
			return
		case !plain.MatchString(value):
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		words = append(words, "--"+f.Name, value)
	})
	return strings.Join(words, " ")
}

// short are the values of a list, numbers without zeros at their end.
func short(values []string) (all []string) {
	for _, text := range values {
		if x, err := strconv.ParseFloat(text, 64); err == nil {
			text = strconv.FormatFloat(x, 'g', -1, 64)
		}
		all = append(all, text)
	}
	return all
}

// packagesOf are the packages that a result is of: that of the report, and the daemons if it ran them.
func packagesOf(found finding, daemons bool) []string {
	typ := reflect.TypeOf(found)
	if demo, is := found.(demoFinding); is {
		typ = reflect.TypeOf(demo.Report)
	}
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	packages := []string{"./" + strings.TrimPrefix(typ.PkgPath(), "proffer/")}
	if daemons {
		packages = append(packages, "./cmd/proffer")
	}
	return packages
}

// newResults lists the results that are kept.
func newResults() *cobra.Command {
	return &cobra.Command{
		Use:   "results",
		Short: "List the results that are kept, and which of them are stale",
		Long: `Lists the files of the folder results of the clone around the current folder: the
date and commit of each, its command, and whether it is stale: whether the packages that
were measured, all packages of ours that they import, or the eBPF objects embedded there
differ from what they were. Each result comes from its command with --result; the pages
of docs/evidence are rendered from them by make update. A stale result decides nothing.`,
		Example: "  proffer-lab results\n  proffer-lab model --rho 0.87 --result results/model.json",
		Args:    cli.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return listResults(cmd.OutOrStdout()) },
	}
}

func listResults(w io.Writer) error {
	root, err := results.Root(".")
	if err != nil {
		return err
	}
	t, err := results.List(root)
	if err != nil {
		return err
	}
	return t.Print(w)
}
