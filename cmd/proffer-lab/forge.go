package main

import (
	"context"

	"github.com/spf13/cobra"

	"proffer/lab/farmrun"
	"proffer/lab/storms"
)

var _ = registerTrial(forgeTrial)

func forgeTrial(f *experimentFlags) trial {
	var e storms.Forge
	return trial{
		name:  "forge",
		short: "forge signals, RSTs and FINs: does anything change inside",
		long: `Sends forged frames from the client to every node, with the edge of the SR domain
open. Nine in ten are signals: all functions that carry a tag, as if from a
node of the domain, with a random tag or none; any function from outside the
domain; SRHs with wrong lengths and pointers; segments on packets for the VIP;
frames cut off. Half of them name a live flow. Then RSTs and FINs with random
sequence numbers, in the names of live and of invented clients.

Before and after the signals all flow tables are read from their pins and
hashed, without the times at which flows were last seen, and the TCP segments
that came to any node's kernel are counted.

--json prints one object: packets, signals, floods (RSTs and FINs), seen (signals
that our programs counted as dropped), changed_maps (nodes with tables that the
signals changed), delivered (segments of signals that came to a kernel),
accepted (connections), entries (gained or lost by all frames), flows, lost,
asking (requests in progress by the agents' counters, afterwards), recounted
(counts of them that a recount had to set right), counters
(the counters of the signals), servers, seed. --out gets the counters;
there is no figure.

Fails if a table changed, anything was delivered or accepted, or a flow was lost.`,
		example: `  proffer-lab experiment forge
  proffer-lab experiment forge --packets 10000000 --seed 7 --json`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&e.Packets, "packets", 1_000_000, "frames to forge, 100,000 a second, `N`")
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
