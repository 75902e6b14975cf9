package main

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"proffer/lab/application"
	"proffer/lab/loads"
)

var _ = registerTrial(loadTrial)

func loadTrial(*experimentFlags) trial {
	var e loads.Experiment
	return trial{
		name:  "load",
		short: "hold the load that an agent reads to the requests in progress of real programs",
		long: `Runs real programs, one after the other, on a server behind a load balancer and
an agent with no setting for them, and asks them requests that take CPU time, that
wait, or either: 2, 4, 8 and 16 clients, which think between two requests. A
hundred times a second the requests in progress are counted at the clients and
each signal is read beside that. Idle connections that had an answer each are
open all the while. Programs that Debian has must be installed; the error names
the package of one that is missing.

The programs: ` + strings.Join(application.Names(), ", ") + `.

--json prints an array of rows, a program, a kind of requests and a signal each:
program; requests (cpu, wait or mixed); signal: the load measure, or the source of
the application's own word; default, whether an agent uses it without a setting;
bias, the mean of the signal less that of the requests in progress, in parts of the
latter, and bias_requests, in requests; correlation; and idle, the mean of the signal
with idle connections alone. --servers and its like have no effect: there is one server.

Fails if the default reads more than 0 with idle connections, is off by more than
15 % and one request, has a correlation below .95, or reads 0 in more than 2 % of
the samples with a request of more than 5 ms. The table names the programs that are
exceptions; of them the application's own word must keep all of that, or the program
that the table names as the same one made visible.`,
		example: `  proffer-lab experiment load --quick
  proffer-lab experiment load --programs nginx-h1,redis --out out`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.StringSliceVar(&e.Programs, "programs", nil, "programs, separated by commas, `LIST` (default all)")
			flags.DurationVar(&e.Each, "each", 3*time.Second, "how long each of four levels of load takes, `D`")
			flags.IntVar(&e.Idle, "idle", 1000, "idle connections, `N`")
			flags.BoolVar(&e.Quick, "quick", false, "levels of 500 ms")
		},
		ready: func() (err error) {
			e.Lab, err = os.Executable()
			return err
		},
		action: does(&e, nil, &e.Seed, &e.Proffer),
	}
}

// newServe is the verb of the programs that the experiment load runs from this binary.
func newServe() *cobra.Command {
	page := ""
	cmd := &cobra.Command{
		Use:    "serve KIND ARGUMENT...",
		Short:  "Serve requests of the experiment load",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return application.Serve(args[0], page, args[1:]) },
	}
	cmd.Flags().StringVar(&page, "page", "", "report the load at the agent's `SOCKET`")
	return cmd
}

var _ = registerTrial(gainTrial)

func gainTrial(*experimentFlags) trial {
	var e loads.Gain
	return trial{
		name:  "gain",
		short: "measure the gain of hunting by the default load, beside hunting by the true one",
		long: `Runs a program on each of some servers, real CPU time under a quota of their
control groups, and sends the same requests three times: with the policy single,
with the hunting policy and the default load, and with the hunting policy and the
true load, on a load page: each request has a connection of its own, and the
connections of a server are counted a thousand times a second. Programs that
Debian has must be installed; the error names the package of one that is missing.

The programs: ` + strings.Join(loads.GainPrograms(), ", ") + `. nginx
compresses one of three texts, whatever the CPU time that is asked for. Two short
runs before warm a program up, and measure the CPU time that a request takes, so
the capacity of the farm.

--json prints an array of rows: program; load: single (none), default or true;
policy; requests that were answered and failed; mean_s, p50_s and p90_s of the
answered; gain_s, how much p90 is less than that of single; gain_share, that of the
true load's gain; offered, the load over that capacity; and late_s, how
late requests left on average.

Fails if a request failed, if requests left late by more than a tenth of the
median latency, or if the default has less than 80 % of the true load's gain.`,
		example: `  proffer-lab experiment gain --out out
  proffer-lab experiment gain --programs node --policy hunt:static:1`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.StringSliceVar(&e.Programs, "programs", nil, "programs, separated by commas, `LIST` (default all)")
			flags.StringVar(&e.Policy, "policy", "hunt:static:2", "the hunting `POLICY`")
			flags.IntVar(&e.Servers, "servers", 4, "servers of the farm, `N`")
			flags.Float64Var(&e.Share, "share", 0.2, "quota of a server, in `CORES`")
			flags.DurationVar(&e.Mean, "mean", 10*time.Millisecond, "mean CPU `TIME` that a request asks for")
			flags.Float64Var(&e.Load, "load", 0.85, "offered load as a share of the farm's capacity, 0 < `RHO` < 1")
			flags.DurationVar(&e.For, "for", 30*time.Second, "how long requests arrive in each run, `D`")
		},
		ready: func() (err error) {
			e.Lab, err = os.Executable()
			return err
		},
		action: does(&e, nil, &e.Seed, &e.Proffer),
	}
}
