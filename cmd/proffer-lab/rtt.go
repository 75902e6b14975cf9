package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"proffer/lab/farmrun"
	"proffer/lab/hlb"
)

var _ = registerTrial(rttTrial)

func rttTrial(f *experimentFlags) trial {
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
		check: func() error {
			e.Servers, e.Seed = f.servers, f.seed
			return e.Check()
		},
		asks: func() farmrun.Asks { return e.Asks() },
		run: func(ctx context.Context, programs string, show func(farmrun.Step)) (finding, error) {
			e.Programs = programs
			return e.Run(ctx, show)
		},
	}
}
