package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/lab/demo"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/policy"
)

// demoFlags are the demo's flags before they are checked.
type demoFlags struct {
	tail
	policies []string
	srlb     demo.Experiment
}

func newDemo() *cobra.Command {
	f := &demoFlags{tail: tail{of: "demo"}}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show on this machine how offered connections find free servers",
		Long: `Builds a farm of network namespaces on this machine, runs the real daemons in
them, sends the same Poisson arrivals through each policy, and draws the
SRLB paper's Figures 3 and 4. Needs root; removes all it made, also on
Ctrl-C.

The demo first measures for some seconds how many requests a second this machine sends on
time. By that it chooses --servers, --mean and --requests, so that measuring and all runs
end within two minutes; what you give is taken as it is. If the first policy's requests
leave late all the same, the load is halved.

Policies: ` + strings.Join(policy.Spellings(), ", ") + `.

--fast-servers makes the last N servers faster, by cores that are --speed times as
fast, or by --fast-cores. Each server's configured weight is then its capacity; with
:inverted behind a policy that heeds weights each kind has the weight of the other, as
an operator's mistake.

Every policy has its row, and a row that is not what it seems a mark with its reason: failed
(no run, or no answer), late (requests left late twice; a run that can no longer keep its
schedule ends after a tenth of its requests), or uncertain (too few requests for a mean to
25 %, or responses 25 % longer than an exact replay of them). Late and failed rows are
compared with no other. Exit code 1 only if no policy had an answer, or files could not be
written. "proffer-lab experiment" is the strict one.

--json prints one object: seed, load, servers, service_s (mean), policies. policies is an
array of policy, requests, resets, refusals, timeouts, errors (any other end), mean_s,
mean_ci_s (half the 95 % interval), p50_s, p90_s, p99_s, fairness, first_accept, fast_share,
syn_synack_p50_s, fidelity (mean over that of an exact replay), mean_single_over_this, and,
of a marked row, mark and reason. --out gets the raw rows, one a request, as soon as a
policy is done, and at the end, after the result is printed, results.json, cdf and load as
SVG, PNG and CSV.`,
		Example: `  proffer-lab demo
  proffer-lab demo --policies single,learned --fast-servers 6 --speed 2 --lbs 2`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, func() error { return f.check(cmd.Flags().Changed) }, f.measure)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.policies, "policies", []string{"single", "hunt:static:4", "hunt:dynamic", "learned"}, "policies to compare, `LIST` with commas")
	flags.Float64Var(&f.srlb.Load, "load", 0.88, "offered load as a share of the farm's capacity, 0 < `RHO` < 1")
	flags.IntVar(&f.srlb.Servers, "servers", 0, "servers, `N` (default: chosen)")
	flags.IntVar(&f.srlb.Cores, "cores", 2, "virtual cores a server, `K`")
	flags.IntVar(&f.srlb.Workers, "workers", 32, "workers a server, `W`")
	flags.IntVar(&f.srlb.Fast, "fast-servers", 0, "servers that are faster than the others, `N` of --servers")
	flags.Float64Var(&f.srlb.Speed, "speed", 0, "their cores are `X` times as fast (default 1)")
	flags.IntVar(&f.srlb.FastCores, "fast-cores", 0, "they have `K` virtual cores each (default --cores)")
	flags.IntVar(&f.srlb.LBs, "lbs", 1, "load balancers, `N`")
	flags.IntVar(&f.srlb.Requests, "requests", 0, "requests a policy, `N` (default: chosen)")
	flags.DurationVar(&f.srlb.Mean, "mean", 0, "mean service `TIME` (default: chosen)")
	flags.Uint64Var(&f.srlb.Seed, "seed", 1, "seed of arrivals and service times")
	f.flag(flags)
	flags.StringVar(&f.out, "out", "demo-out", "`FOLDER` for pictures, results and rows")
	flags.BoolVar(&f.json, "json", false, "print one JSON object instead of the table")
	cmd.AddCommand(newEdgeDemo())
	return cmd
}

// measure runs the policies. What is done when a run fails is shown, and the failure is the verdict.
func (f *demoFlags) measure(ctx context.Context, show *progress) (finding, error) {
	e := f.srlb
	e.Programs, e.Out = f.programs, f.out
	if !e.Given() {
		fmt.Fprintln(show.w, "measuring how many requests a second this machine sends on time")
		var able farmrun.Ability
		var err error
		if e, able, err = e.Choose(ctx); err != nil {
			return nil, err
		}
		fmt.Fprintf(show.w, "about %.0f/s; so there are %d servers, services take %v in the mean, and a policy gets %d requests\n",
			able.Rate, e.Servers, e.Mean, e.Requests)
	}
	fmt.Fprintf(show.w, "building a farm of %d servers; %d policies take about %s\n", e.Servers, len(e.Policies), farmrun.Left(e.Duration()))
	report, err := e.Run(ctx, func(s demo.Progress) { show.update(demoLine(s)) })
	if len(report.Policies) == 0 {
		return nil, err
	}
	return demoFinding{report, err}, nil
}

// demoFinding is what the demo shows, and why that is not all.
type demoFinding struct {
	*demo.Report
	unfinished error
}

// Holds is that a policy had answers: how they compare decides nothing.
func (f demoFinding) Holds() error { return f.unfinished }

// check refuses flags that cannot be run, before anything is made.
func (f *demoFlags) check(given func(flag string) bool) error {
	s := &f.srlb
	s.Policies = nil
	seen := map[string]bool{}
	for _, spelt := range f.policies {
		p, err := farmrun.ParseCompared(spelt)
		if err != nil {
			return fmt.Errorf("--policies: %w", err)
		}
		if seen[p.String()] {
			return fmt.Errorf("--policies: %s stands there twice", p)
		}
		seen[p.String()] = true
		s.Policies = append(s.Policies, p)
	}
	switch {
	case len(s.Policies) == 0:
		return errors.New("--policies: name at least one")
	case !(s.Load > 0 && s.Load < 1):
		return fmt.Errorf("--load %v: want more than 0 and less than 1; at 1 and above queues grow without end", s.Load)
	case s.LBs < 1 || s.LBs > testbed.MaxLBs:
		return fmt.Errorf("--lbs %d: want 1 to %d", s.LBs, testbed.MaxLBs)
	case given("requests") && (s.Requests < 1 || s.Requests > 10_000_000):
		return fmt.Errorf("--requests %d: want 1 to 10000000", s.Requests)
	case given("mean") && (s.Mean < time.Millisecond || s.Mean > time.Minute):
		return fmt.Errorf("--mean %v: want 1ms to 1m", s.Mean)
	}
	kinds := s.Kinds
	if !given("servers") {
		kinds.Servers = demo.MostServers
	}
	return kinds.Check()
}

// demoLine is the line of progress, and whether it is the last of its run.
func demoLine(s demo.Progress) (string, bool) {
	line := fmt.Sprintf("[%d/%d] %-15s %6d of %d requests, %s left", s.Run, s.Runs, s.Policy, s.Done, s.Total, farmrun.Left(s.Left))
	if s.Try > 1 {
		line += " (again: requests left late)"
	}
	return line, s.Done >= s.Total
}
