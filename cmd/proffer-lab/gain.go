package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"proffer/lab/farmrun"
	"proffer/lab/loads"
)

var _ = registerTrial(gainTrial)

func gainTrial(f *experimentFlags) trial {
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
