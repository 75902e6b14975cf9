package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"proffer/lab/application"
	"proffer/lab/farmrun"
	"proffer/lab/loads"
)

var _ = registerTrial(loadTrial)

func loadTrial(f *experimentFlags) trial {
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
		check: func() error {
			e.Seed = f.seed
			return e.Check()
		},
		run: func(ctx context.Context, programs string, show func(farmrun.Step)) (_ finding, err error) {
			e.Proffer = programs
			if e.Lab, err = os.Executable(); err != nil {
				return nil, err
			}
			return e.Run(ctx, show)
		},
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
