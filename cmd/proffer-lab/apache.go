package main

import (
	"time"

	"github.com/spf13/cobra"

	"proffer/lab/apache"
)

var _ = registerTrial(apacheTrial)

func apacheTrial(*experimentFlags) trial {
	var e apache.Experiment
	quick := false
	return trial{
		name:  "apache",
		short: "measure the papers' own application: Apache, PHP, real CPU time (SRLB Figs. 2–5, 6LB Figs. 10, 11e)",
		long: `Runs Apache httpd (mpm_prefork, a backlog of 128, tcp_abort_on_overflow) with a
PHP loop of exponential length on every server, real CPU time under a quota of
its control group, and agents that read Apache's scoreboard. The length of each
loop is in its URL, so that all policies of a load have the same arrivals. Every
run is repeated on the testbed's virtual cores. Needs the Debian packages
apache2-bin and libapache2-mod-php. The whole takes 32 minutes, --quick three.

First all servers are kept busy, which measures the share of a core that each
gets and λ₀, the rate that the farm can sustain; loads are shares of that.

--figures selects from srlb-2, srlb-3, srlb-4, srlb-5, 6lb-10a, 6lb-10b and
6lb-11e: only the runs that they need are made.

--json prints an object: calibration, with share, share_min and share_max (of a
core that a server got), overhead_s (CPU time of a request beside its loop),
capacity_per_s (λ₀), service_s (the mean request alone on its server) and
machine_cores; and runs, an array of servers (apache or virtual), load, policy,
requests, refusals, failed, mean_s, in units of service_s mean, mean_ci, p50, p90
and p99, and fairness, busy (workers of a server), first_accept, fidelity (mean over
that of an exact replay on ideal servers), mean_single_over_this, server_cores and
machine_cores. unclaimed lists runs without a result.

Fails if a server got a tenth more or less than its quota while all were busy, a
request timed out or met an error, or the generator could not keep its schedule. How
long requests took decides nothing: docs/evidence/apache.md reads the figures.`,
		example: `  proffer-lab experiment apache --out out
  proffer-lab experiment apache --figures srlb-3,srlb-4 --for 60s --out out`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.StringSliceVar(&e.Figures, "figures", nil, "figures to make, `LIST` with commas; none: all")
			flags.Float64SliceVar(&e.Loads, "loads", nil, "loads of the figures over ρ, `LIST` with commas; none: 0.45,0.61,0.71,0.80,0.88,0.95")
			flags.IntVar(&e.Servers, "servers", 8, "servers of the farm, `N`")
			flags.Float64Var(&e.Share, "share", 0.15, "quota of a server, in `CORES`")
			flags.DurationVar(&e.Period, "period", 10*time.Millisecond, "over which a quota counts, `D`")
			flags.DurationVar(&e.Mean, "mean", 15*time.Millisecond, "mean CPU `TIME` of a request's loop")
			flags.DurationVar(&e.For, "for", 25*time.Second, "how long requests arrive in each run, `D`")
			flags.BoolVar(&quick, "quick", false, "two loads and a quarter of the requests: a few minutes")
		},
		ready: func() error {
			e.Workers = 32
			if quick {
				e.For /= 4
				if len(e.Loads) == 0 {
					e.Loads = []float64{0.61, 0.88}
				}
			}
			return nil
		},
		action: does(&e, nil, &e.Seed, &e.Programs),
	}
}
