package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/lab/bench"
	"proffer/lab/farmrun"
)

// benchFlags are the bench's flags before they are checked.
type benchFlags struct {
	tail
	cpu   int
	runs  int
	rows  string
	flows []string

	beside string
}

func newBench() *cobra.Command {
	f := &benchFlags{tail: tail{of: "bench", alone: true}}
	cmd := &cobra.Command{
		Use:   "bench [--rows REGEXP] [--beside BINARY] [--json] [--out DIR]",
		Short: "Measure the cost of a packet on this machine, beside the floors under it",
		Long: `Runs the programs that the daemons attach, unchanged, over frames of changing
flows inside the kernel (BPF_PROG_RUN), and beside them programs that do only a
part of the same: the floors. Turns of all rows alternate, on one CPU, each of four
short runs, and just before a run come short runs of its floor and of the bench's own
loop. A run is clean if the CPU was as fast just before and after it as it ever was,
by multiplications, dependent reads and branches. After each run the programs' own
counters must say that its packets took the path that the row is about. Needs root;
touches no link of this machine.

Rows are named PROGRAM/MODE/CASE/FLOWS, as lb/hunt/steer/1000.

floor: loop (the bench itself; loop-egress, loop-egress-once and loop-3 … loop-104 as other
rows need it), adjust-head (room for an outer header), encapsulate (headers read, an outer
header written), line (the same with a 64-byte line of an array by the flow's hash), hash and
lru-hash (a key found in the kernel's table; -filling, -full: put into it), clock, calls and
helpers (ten calls of a BPF function, of a helper).
lb, by mode, with -insert, -ipv4, -signed: steer (data of a known flow; -kept in the table
that clients' packets fill; -contended while another CPU makes flows), offer (a SYN without an
entry), begin (a SYN of single), recover and recovered (data without an entry; the answer),
new-filling and new-full (the signal around a SYN-ACK; as many flows wait as there is room
for), establish (the client's acknowledgement), signal and signal-removed (around data, a
FIN), mixed (a SYN to nine packets of known flows), connection-N (whole connections of N
packets of data), opening and opening-end (without data and end; without data), short (SYN,
data, FIN). -apart: with 16,384 flows beside it; -full: in a full table.
agent: not-ours, offer-accept, offer-pass-on, established (the first packet after the SYN),
steer, egress-not-ours, egress-direct (straight to the client), egress-wait (a SYN-ACK in a
signal); flows have no sockets here.
edge (lb, node): steer and begin into a tunnel to a node; through, a node without functions.
work, with its programs attached and just before without: switch (to a process of no
service), threads and events (a request to a server of python3, which must be there).

--json prints an array of rows: program (floor, lb, agent, edge or work), mode, case,
flows, packets (that a time is of: 1, or those of a whole connection), min_ns, median_ns
and spread_ns (10th to 90th percentile) of the clean runs or null, clean_runs,
runs, floor_ratio (min_ns over that of the floor of as many packets), net_ns (min_ns
without the bench's own loop) and net_floor_ratio (the median of a run's time over its
floor's just before, both without their loops). The table is followed by the goals of those rows
that have one (docs/evidence/bench.md has how it measures) and by the cost of a call on this host. --out gets a figure of ns a packet against flows
as SVG, PNG and CSV; packets a second against flows are proffer-lab figures 6lb-13.

--beside BINARY measures another build of proffer-lab, an older one, too: either
build's bench has four turns of the same rows, one after the other, on the same CPU.
The table has the rows of both: min_ns and net_ns, the least of all turns, the same of
the other build, and this build's over the other's. With --json an array of program,
mode, case, flows, other_min_ns, min_ns, ratio, other_net_ns, net_ns and net_ratio.

Fails if less than a tenth of the runs were clean: then the CPU was too busy.`,
		Example: `  proffer-lab bench
  proffer-lab bench --rows '^lb/hunt/' --flows 1e3,1e6 --json
  proffer-lab bench --rows '^lb/hunt/(offer|new)' --beside /tmp/before/proffer-lab`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.perform(cmd) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.json, "json", false, "print JSON instead of the table")
	f.flag(flags)
	flags.StringVar(&f.out, "out", "", "write the figure into `DIR`")
	flags.IntVar(&f.cpu, "cpu", 0, "CPU that measures, `N`, best a CPU with nothing else on it; the last by default")
	flags.IntVar(&f.runs, "runs", 4, "turns of each row, `N`, four short runs each")
	flags.StringVar(&f.beside, "beside", "", "another build of proffer-lab, `BINARY`, that measures the same rows in turns with this one")
	flags.StringVar(&f.rows, "rows", "", "only the rows with names that match `REGEXP`")
	flags.StringSliceVar(&f.flows, "flows", []string{"1", "1e3", "1e4", "1e5", "1e6", "4e6"}, "numbers of known flows, `LIST` with commas")
	return cmd
}

func (f *benchFlags) perform(cmd *cobra.Command) error {
	var b *bench.Bench
	check := func() (err error) {
		b, err = f.bench()
		if err == nil && !cmd.Flags().Changed("cpu") {
			b.CPU, err = bench.LastCPU()
		}
		if err == nil {
			err = b.Check()
		}
		if err == nil && f.beside != "" && f.out != "" {
			err = errors.New("--beside has no figure: leave out --out")
		}
		return err
	}
	return f.run(cmd, check, func(ctx context.Context, show *progress) (finding, error) {
		update, note := func(s farmrun.Step) { show.update(stepLine(s)) }, func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
		if f.beside == "" {
			return b.Run(ctx, update, note)
		}
		return f.builds(ctx, b, update, note)
	})
}

// builds measures another build beside this one.
func (f *benchFlags) builds(ctx context.Context, b *bench.Bench, show func(farmrun.Step), note func(string)) (*bench.BuildsReport, error) {
	this, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	return (&bench.Builds{Bench: b, Other: f.beside, This: this}).Run(ctx, show, note)
}

// bench reads the flags.
func (f *benchFlags) bench() (*bench.Bench, error) {
	b := &bench.Bench{CPU: f.cpu, Turns: f.runs}
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
