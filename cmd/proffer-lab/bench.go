package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/dataplane"
	"proffer/lab/experiment"
)

// benchFlags are the bench's flags before they are checked.
type benchFlags struct {
	json  bool
	out   string
	cpu   int
	runs  int
	rows  string
	flows []string
}

func newBench() *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench [--rows REGEXP] [--json] [--out DIR]",
		Short: "Measure the cost of a packet on this machine, beside the floors under it",
		Long: `Runs the programs that the daemons attach, unchanged, over frames of changing
flows inside the kernel (BPF_PROG_RUN), and beside them programs that do only a
part of the same: the floors. Passes over all rows alternate, on one CPU; a run is
clean if the CPU was as fast just before and after it as it ever was. After each
run the programs' own counters must say that its packets took the path that the
row is about. Needs root; touches no link of this machine.

Rows are named PROGRAM/MODE/CASE/FLOWS, as lb/hunt/steer/1000.

--json prints an array of rows: program (floor, lb or agent), mode, case, flows,
packets (that a time is of: 1, or those of a whole connection), min_ns, median_ns
and spread_ns (10th to 90th percentile) of the clean runs or null, clean_runs,
runs, floor_ratio (min_ns over that of the floor of as many flows and packets),
net_ns and net_floor_ratio (the same without the bench's own loop). The table is followed by the goals of those rows
that have one (docs/bench.md). --out gets a figure of ns a packet against flows
as SVG, PNG and CSV; packets a second against flows are proffer-lab figures 6lb-13.
docs/bench.md explains each row.

Fails if less than a third of the runs were clean: then the CPU was too busy.`,
		Example: `  proffer-lab bench
  proffer-lab bench --rows '^lb/hunt/' --flows 1e3,1e6 --json`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.json, "json", false, "print JSON instead of the table")
	flags.StringVar(&f.out, "out", "", "write the figure into `DIR`")
	flags.IntVar(&f.cpu, "cpu", 0, "CPU that measures, `N`, best a CPU with nothing else on it; the last by default")
	flags.IntVar(&f.runs, "runs", 8, "runs of each row, `N`")
	flags.StringVar(&f.rows, "rows", "", "only the rows with names that match `REGEXP`")
	flags.StringSliceVar(&f.flows, "flows", []string{"1", "1e3", "1e4", "1e5", "1e6", "4e6"}, "numbers of known flows, `LIST` with commas")
	return cmd
}

func (f *benchFlags) run(cmd *cobra.Command) error {
	b, err := f.bench()
	if err == nil && !cmd.Flags().Changed("cpu") {
		b.CPU, err = experiment.LastCPU()
	}
	if err == nil {
		err = b.Check()
	}
	if err != nil {
		return cli.BadUsage(err)
	}
	if err := dataplane.Preflight(); err != nil {
		return err
	}
	if f.out != "" {
		if err := writable(f.out); err != nil {
			return err
		}
	}
	show := newProgress(cmd.ErrOrStderr())
	report, err := b.Run(cmd.Context(), func(s experiment.Step) { show.update(stepLine(s)) }, func(line string) {
		fmt.Fprintln(cmd.ErrOrStderr(), line)
	})
	show.end()
	if cmd.Context().Err() != nil {
		return errors.New("interrupted; everything the bench made is removed")
	}
	if err != nil {
		return err
	}
	return errors.Join(showResult(cmd, report, f.json, f.out), report.Holds())
}

// bench reads the flags.
func (f *benchFlags) bench() (*experiment.Bench, error) {
	b := &experiment.Bench{CPU: f.cpu, Runs: f.runs}
	for _, text := range f.flows {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n != float64(int(n)) {
			return nil, fmt.Errorf("--flows: %q is not a whole number, as 1000 or 1e6", text)
		}
		b.Flows = append(b.Flows, int(n))
	}
	if f.rows == "" {
		return b, nil
	}
	var err error
	if b.Rows, err = regexp.Compile(f.rows); err != nil {
		return nil, fmt.Errorf("--rows: %w", err)
	}
	return b, nil
}
