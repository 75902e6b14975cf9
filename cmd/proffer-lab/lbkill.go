package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"proffer/lab/farmrun"
	"proffer/lab/storms"
)

var _ = registerTrial(lbKillTrial)

func lbKillTrial(f *experimentFlags) trial {
	var e storms.LBKill
	return trial{
		name:  "lbkill",
		short: "kill load balancers under traffic: which requests and flows notice",
		long: `Kills a random load balancer at even intervals, while short connections, idle
flows and bulk streams (1 MB/s each) go through all of them by the router's
ECMP. In turns a host dies and a daemon alone. A host dies at once; the router goes on
sending to it for --detect and then withdraws its route, as BFD or BGP would. The host is
built again half an interval later, and is announced again: it has to find the flows
that the router sends it. A daemon alone dies by SIGKILL and is started again; its host
stays announced and its programs go on. At the end all idle flows exchange data, and
all streams end in good order, every byte checked.

--json prints one object: kills, host_kills, requests, failed (anything but an
answer), detect_ms, swallowed (frames to and from dead hosts until their routes were
withdrawn), longest_stall_ms (of any request, from when it was due), idle_flows,
idle_lost, bulk_flows, bulk_lost, bulk_bytes, carrying (load balancers that
steered packets since they came back), lbs, servers, seed.

Fails if a request failed, a flow was lost, a load balancer that came back got
nothing to do, no frame met a dead host, or a request took more than 1.5 s: a lost SYN is sent again after
one.`,
		example: `  proffer-lab experiment lbkill
  proffer-lab experiment lbkill --lbs 2 --every 2s --for 20s --json`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.DurationVar(&e.Every, "every", 5*time.Second, "`TIME` from one death to the next")
			flags.DurationVar(&e.For, "for", 2*time.Minute, "`TIME` in all")
			flags.DurationVar(&e.Detect, "detect", 500*time.Millisecond, "`TIME` from a host's death to the withdrawal of its route")
			flags.IntVar(&e.LBs, "lbs", 3, "load balancers, `N`")
			flags.Float64Var(&e.Rate, "rate", 200, "short connections a second, `N`")
			flags.IntVar(&e.Idle, "idle", 1000, "idle flows, `N`")
			flags.IntVar(&e.Bulk, "bulk", 20, "bulk streams, half of them uploads, `N`")
		},
		check: func() error {
			e.Servers, e.Seed = f.servers, f.seed
			return e.Check()
		},
		asks: func() farmrun.Asks { return farmrun.Asks{Rate: e.Rate, Mean: 20 * time.Millisecond} },
		run: func(ctx context.Context, programs string, show func(farmrun.Step)) (finding, error) {
			e.Programs = programs
			return e.Run(ctx, show)
		},
	}
}
