package main

import (
	"time"

	"github.com/spf13/cobra"

	"proffer/lab/hlb"
)

var _ = registerTrial(hlbTrial)

func hlbTrial(f *experimentFlags) trial {
	var e hlb.Experiment
	return trial{
		name:  "hlb",
		short: "measure HLB's figures on real packets: servers of which half have twice the cores (HLB Figs. 7–9, 11, 14, 16, 20, 21, 23, 24)",
		long: `Builds farms of servers on virtual cores, half of them with one core and half with
two, behind one to eight LBs, and sends each policy the same requests. The paper's
600 s a run are scaled down to --for, the 24 hours of its trace to a quarter of that
each, with the rates that its text states. Each figure prints how else it differs.

Figures: 7 and 8 (a day), 9 (use of servers at the peak), 11 (cores 1:1 to 1:4), 14
and 16 (1 to 8 LBs), 20 (round trips of clients), 21 (kinds of requests), 23 (other
work on half the servers), 24 (cost; by the rows of bench). The whole takes most of an
hour, --quick less than four minutes. Each figure is written as soon as its runs are
done, so that after an interruption --figures makes those that are missing.

--json prints an array of figures: figure, shows, scale (how it differs), beside
(shows, published, a value of the paper's text, or goal, one of our own, and ours),
costs (policy, connection_ns and rate_of_hash), unclaimed (policy, reason: runs without
a result) and runs, an array of policy, lbs, cores (of a server of the second half), load, requests (pages, loop or files), course (steady, day or
slowed), rtt_ms, answered, failed (refused, reset, late: an overloaded server's),
mean_s, sd_s, p50_s, p90_s, p99_s, slow_mean_s and fast_mean_s (of the halves),
fast_share (of answers, those by the second half), fast_queue_share, weights_ratio
(second half over first, at the LBs) and fidelity (mean over that of an exact replay; 0: none).

Fails if the generator could not keep the schedule of a run, and, without --quick, if
at the peak (figure 9) the p90 of learned is not 15 % below lsq and 25 % below sed with
inverted weights and within 10 % of sed with the right ones, or if its weights do not
follow a change (figure 23) within 5 s.`,
		example: `  proffer-lab experiment hlb --quick --out out
  proffer-lab experiment hlb --figures 9,23 --policies lsq,sed,sed:inverted,learned --out out`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.StringSliceVar(&e.Figures, "figures", nil, "figures to make, by number, `LIST` with commas; none: all")
			flags.StringSliceVar(&e.Policies, "policies", nil, "of their policies only these, `LIST` with commas; none: all")
			flags.IntVar(&e.Servers, "servers", 24, "servers of the farm, half of them with more cores, `N`")
			flags.DurationVar(&e.Mean, "mean", 40*time.Millisecond, "mean service `TIME` of a request")
			flags.DurationVar(&e.For, "for", 20*time.Second, "how long requests arrive in each run after a quarter as long to warm up, `D`")
			flags.BoolVar(&e.Quick, "quick", false, "runs of 1.5 s, fewer policies and points: less than four minutes")
		},
		ready: func() error {
			e.Out = f.out
			if e.Quick {
				e.For = min(e.For, 1500*time.Millisecond)
			}
			return nil
		},
		action: does(&e, nil, &e.Seed, &e.Programs),
	}
}

var _ = registerTrial(rttTrial)

func rttTrial(*experimentFlags) trial {
	var e hlb.RTT
	return trial{
		name:  "rtt",
		short: "put a round trip before a farm that learns: do new flows herd",
		long: `Puts round trips between the clients and a farm without agents, where half of
the servers have twice the cores, and sends the same requests by learned, by
learned:literal (the paper's rule: a flow counts from its first data packet on),
and by learned beside a flood of SYNs of clients that do not exist. The first
quarter of a run warms up, and does not count.

--json prints an array of rows, one a run: rtt_ms; policy; forged_per_s (SYNs);
requests that were answered and failed; mean_ms, p50_ms and p90_ms, from when each
was due to its answer; p90_net_ms, less two round trips, those of the handshake and
of the answer; p90_over and p90_net_over, p90_ms and p90_net_ms over the p90_ms of
learned without round trip and flood; weights, the faster servers' over the
others', as learned at the end; counting, which flows count at the end; and
box_late_ms, how late the delay box was, on average.

Fails if a request failed; if p90_net_ms of learned is more than 10 % over its p90
without round trip, or more than 25 % under the flood over the same without; if
flows count otherwise than they are to; or if learned:literal does not herd with
the longest round trip.`,
		example: `  proffer-lab experiment rtt --out out
  proffer-lab experiment rtt --quick
  proffer-lab experiment rtt --mean 2s --for 4m`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.DurationSliceVar(&e.RTTs, "rtts", []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond}, "round trips, `LIST` with commas, 0s first")
			flags.IntVar(&e.LBs, "lbs", 2, "load balancers, `N`")
			flags.IntVar(&e.Cores, "cores", 4, "virtual cores of the slower servers, `N`")
			flags.DurationVar(&e.Mean, "mean", 500*time.Millisecond, "mean service `TIME` of a request")
			flags.Float64Var(&e.Load, "load", 0.885, "offered load as a share of the farm's capacity, 0 < `RHO` < 1")
			flags.DurationVar(&e.For, "for", time.Minute, "how long requests arrive in each run, `D`")
			flags.Float64Var(&e.Flood, "flood", 5, "forged SYNs for each request, `N`")
			flags.BoolVar(&e.Quick, "quick", false, "20 s of arrivals in each run: under 4 minutes")
		},
		action: does(&e, &e.Servers, &e.Seed, &e.Programs),
	}
}
