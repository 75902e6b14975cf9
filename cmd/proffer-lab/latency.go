package main

import (
	"context"

	"github.com/spf13/cobra"

	"proffer/lab/farmrun"
	"proffer/lab/peers"
)

var _ = registerTrial(latencyTrial)

func latencyTrial(f *experimentFlags) trial {
	var e peers.Latency
	return trial{
		name:  "latency",
		short: "measure SYN to SYN-ACK: by hash, taken at first, passed on once (6LB Fig. 11c)",
		long: `Opens connections one after the other on an idle farm and takes the time of
connect(2) in the client's namespace. Three ways take turns: single (by hash;
the SYN-ACK goes straight to the client), hunt-first (the first candidate takes
it; the SYN-ACK goes through the load balancer), hunt-second (the first always
passes it on). 6LB Figure 11c has them under load.

--json prints an array of rows, one a way: method, connections, p50_us, p90_us,
p99_us, mean_us.

Fails if connections came otherwise by the agents' counters. How long they
took decides nothing.`,
		example: `  proffer-lab experiment latency --connections 10000 --out out`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&e.Connections, "connections", 2000, "connections each way, `N`")
		},
		check: func() error {
			e.Servers, e.Seed = f.servers, f.seed
			return e.Check()
		},
		run: func(ctx context.Context, programs string, show func(farmrun.Step)) (finding, error) {
			e.Programs = programs
			return e.Run(ctx, show)
		},
	}
}
