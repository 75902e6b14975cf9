package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"proffer/lab/farmrun"
	"proffer/lab/storms"
)

var _ = registerTrial(stormTrial)

func stormTrial(f *experimentFlags) trial {
	var e storms.Storm
	return trial{
		name:  "storm",
		short: "all troubles at once: daemons, links, containers, other programs, attacks",
		long: `Short requests, long flows and a service in a container go through a farm while,
all at once, daemons get SIGHUP, SIGTERM and SIGKILL and are started again, links
and gateways change their MAC, routes come and go in bursts of 400, tc programs
of another owner are attached before the agents' and removed (one kind keeps
packets from them), a container is replaced, and an attacker sends SYNs and
datagrams of clients that do not exist, stray ACKs, datagrams to a port without a
service, frames for another host, and SRv6 without a key. The LBs' tables of flows
have 4096 entries, which the datagrams fill in seconds.

--json prints one object: seconds, lbs, servers, requests, failed (requests with
a healthy server that got anything but an answer), excused (in a container's
hands when that ended), longest_ms (of any request, from when it was due), flows,
flows_lost, abuses, seed. abuses is an array of name, times (changes made, or
frames sent), counter (of the daemons; empty: the daemon's status, asked at each
change), counted.

Fails if a request with a healthy server failed, a long flow was lost, a request
took more than 1.5 s, a daemon did not notice a change, or an abuse was not
counted under its name.`,
		example: `  proffer-lab experiment storm --out out
  proffer-lab experiment storm --for 30s --every 2s --json`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.DurationVar(&e.For, "for", 10*time.Minute, "`TIME` in all")
			flags.DurationVar(&e.Every, "every", 3*time.Second, "`TIME` from one change of each lane to its next: daemons, links")
			flags.IntVar(&e.LBs, "lbs", 2, "load balancers, `N`")
			flags.Float64Var(&e.Rate, "rate", 200, "short requests a second, `N`")
			flags.IntVar(&e.Flows, "flows", 500, "long flows, `N`")
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
