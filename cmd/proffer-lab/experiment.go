package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/lab/farmrun"
	"proffer/lab/tables"
)

// experimentFlags are those that every experiment has.
type experimentFlags struct {
	tail
	list    bool
	seed    uint64
	servers int
}

// trial is an experiment: its name and its action.
type trial struct {
	name, short, long, example string

	flags func(*cobra.Command)
	ready func() error // after the flags were read; nil: nothing to do
	action
}

// action is what an experiment does, and where it keeps what all are told.
type action struct {
	servers  *int // nil: it has a number of its own
	seed     *uint64
	programs *string

	check func() error        // flags that cannot be run
	asks  func() farmrun.Asks // most, of this machine; nil: little
	run   func(context.Context, func(farmrun.Step)) (finding, error)
}

// experiment is an experiment with a result F.
type experiment[F finding] interface {
	Check() error
	Run(context.Context, func(farmrun.Step)) (F, error)
}

func does[F finding](e experiment[F], servers *int, seed *uint64, programs *string) action {
	a := action{servers: servers, seed: seed, programs: programs, check: e.Check}
	a.run = func(ctx context.Context, show func(farmrun.Step)) (finding, error) { return e.Run(ctx, show) }
	if asker, ok := e.(interface{ Asks() farmrun.Asks }); ok {
		a.asks = asker.Asks
	}
	return a
}

// told gives the experiment what all are told.
func (f *experimentFlags) told(t trial) error {
	*t.seed = f.seed
	if t.servers != nil {
		*t.servers = f.servers
	}
	if t.ready != nil {
		if err := t.ready(); err != nil {
			return err
		}
	}
	return t.check()
}

// registeredTrials are the experiments there are. The file of each registers it, in the
// declaration of a package variable; the slice is only read once main runs.
var registeredTrials []func(*experimentFlags) trial

func registerTrial(t func(*experimentFlags) trial) bool {
	registeredTrials = append(registeredTrials, t)
	return true
}

func newExperiment() *cobra.Command {
	f := &experimentFlags{tail: tail{of: "experiment"}}
	cmd := &cobra.Command{
		Use:   "experiment [NAME]",
		Short: "Break a farm on this machine, and measure the effect",
		Long: `Builds a farm of network namespaces on this machine, runs the real daemons in
them under real TCP, and then makes it fail as networks do: replaces servers and
load balancers, kills hosts, floods, loses and forges packets. Needs root;
removes all it made, also on Ctrl-C.

Before it begins, an experiment says whether this machine can send its requests on time: a
trial of two seconds. Exit code 1 if an experiment fails a requirement, which is printed. --json
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
	f.flag(flags)
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
	return f.run(cmd, func() error { return f.told(t) }, func(ctx context.Context, show *progress) (finding, error) {
		asks := farmrun.Asks{Rate: 200, Mean: 50 * time.Millisecond}
		if t.asks != nil {
			asks = t.asks()
		}
		able, err := asks.Try(ctx, f.programs)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(show.w, able)
		*t.programs = f.programs
		return t.run(ctx, func(s farmrun.Step) { show.update(stepLine(s)) })
	})
}
