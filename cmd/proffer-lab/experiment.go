package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/dataplane"
	"proffer/lab/farmrun"
	"proffer/lab/tables"
)

// experimentFlags are those that every experiment has.
type experimentFlags struct {
	list    bool
	seed    uint64
	servers int
	json    bool
	out     string
}

// finding is the result of an experiment.
type finding interface {
	result
	Holds() error // the requirement that it did not meet
}

// result can be shown and saved.
type result interface {
	JSON() any
	Print(io.Writer) error
	Files() []tables.File
}

// trial is one experiment: its name and its action.
type trial struct {
	name, short, long, example string

	flags func(*cobra.Command)
	check func() error // flags that cannot be run
	run   func(ctx context.Context, programs string, show func(farmrun.Step)) (finding, error)
}

// registeredTrials are the experiments there are. The file of each registers it, in the
// declaration of a package variable; the slice is only read once main runs.
var registeredTrials []func(*experimentFlags) trial

func registerTrial(t func(*experimentFlags) trial) bool {
	registeredTrials = append(registeredTrials, t)
	return true
}

func newExperiment() *cobra.Command {
	f := &experimentFlags{}
	cmd := &cobra.Command{
		Use:   "experiment [NAME]",
		Short: "Break a farm on this machine, and measure the effect",
		Long: `Builds a farm of network namespaces on this machine, runs the real daemons in
them under real TCP, and then makes it fail as networks do: replaces servers and
load balancers, kills hosts, floods, loses and forges packets. Needs root;
removes all it made, also on Ctrl-C.

Exit code 1 if an experiment fails a requirement, which is printed. --json
prints the fields in ` + "`proffer-lab help experiment NAME`" + `; --out gets the raw rows as
CSV, and the figure, where there is one, as SVG, PNG and CSV. docs/evidence/resilience.md
has results, docs/evidence/peers.md the comparison with other load balancers.`,
		Example: `  proffer-lab experiment --list
  proffer-lab experiment resiliency --out out`,
		Args: experimentOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return listTrials(cmd) },
	}
	cmd.Flags().BoolVar(&f.list, "list", false, "print the experiments, a line each, as the verb alone does")
	flags := cmd.PersistentFlags()
	flags.Uint64Var(&f.seed, "seed", 1, "seed of all that is random, `N`")
	flags.IntVar(&f.servers, "servers", 12, "servers of the farm, `N`")
	flags.BoolVar(&f.json, "json", false, "print JSON instead of the table")
	flags.StringVar(&f.out, "out", "", "write rows and figure into `DIR`")
	for _, newTrial := range registeredTrials {
		cmd.AddCommand(f.command(newTrial(f)))
	}
	return cmd
}

// experimentOnly refuses a name that no experiment has.
func experimentOnly(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return cli.BadUsagef("unknown experiment %q; see `proffer-lab experiment --list`", args[0])
}

// listTrials prints the experiments there are.
func listTrials(cmd *cobra.Command) error {
	t := tables.Left()
	for _, c := range cmd.Commands() {
		t.Addf("%s\t%s", c.Name(), c.Short)
	}
	return t.Print(cmd.OutOrStdout())
}

func (f *experimentFlags) command(t trial) *cobra.Command {
	cmd := &cobra.Command{
		Use:     t.name,
		Short:   t.short,
		Long:    t.long,
		Example: t.example,
		Args:    cli.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.perform(cmd, t) },
	}
	t.flags(cmd)
	return cmd
}

// perform runs an experiment from its flags to its verdict.
func (f *experimentFlags) perform(cmd *cobra.Command, t trial) error {
	if err := t.check(); err != nil {
		return cli.BadUsage(err)
	}
	if err := dataplane.Preflight(); err != nil {
		return err
	}
	programs, err := findProffer()
	if err != nil {
		return err
	}
	if f.out != "" {
		if err := writable(f.out); err != nil {
			return err
		}
	}
	show := newProgress(cmd.ErrOrStderr())
	found, err := t.run(cmd.Context(), programs, func(s farmrun.Step) { show.update(stepLine(s)) })
	show.end()
	if cmd.Context().Err() != nil {
		return errors.New("interrupted; everything the experiment made is removed")
	}
	if err != nil {
		return err
	}
	return errors.Join(showResult(cmd, found, f.json, f.out), found.Holds())
}

// showResult prints the result, and then writes it into out unless that is empty: a full
// disk costs the files, not the result.
func showResult(cmd *cobra.Command, found result, asJSON bool, out string) error {
	err := printResult(cmd.OutOrStdout(), found, asJSON)
	if out == "" {
		return err
	}
	return errors.Join(err, saveFiles(cmd.ErrOrStderr(), out, found.Files()...))
}

// saveFiles writes files and names them.
func saveFiles(log io.Writer, dir string, files ...tables.File) error {
	paths, err := tables.Save(dir, files...)
	if len(paths) > 0 {
		fmt.Fprintf(log, "written: %s\n", strings.Join(paths, " "))
	}
	return err
}

func printResult(w io.Writer, found result, asJSON bool) error {
	if !asJSON {
		return found.Print(w)
	}
	return tables.JSON(w, found.JSON())
}

// stepLine is the line of progress, and whether it is the last.
func stepLine(s farmrun.Step) (string, bool) {
	return fmt.Sprintf("[%d/%d] %s, %s left", s.Done, s.Total, s.Doing, farmrun.Left(s.Left)), s.Done == s.Total
}
