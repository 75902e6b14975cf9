package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"proffer/lab/farmrun"
	"proffer/lab/storms"
)

var _ = registerTrial(floodTrial)

func floodTrial(f *experimentFlags) trial {
	var e storms.Flood
	return trial{
		name:  "flood",
		short: "flood with spoofed SYNs: the effect on established and new flows",
		long: `Opens flows, then floods their service with SYNs of clients that do not exist.
The flows exchange data before, during and after each flood, and new connections
are tried 50 times a second. A displaced flow lives on, as its server is asked for
it; so the counters of that must stand still while the flows speak. The flood is
sent by the machine that serves, so then as much CPU as it took is burnt instead,
and the tries are made again.

--json prints an array of rows, one a rate: rate (asked for; 0: as many as go),
sent_pps, offered (SYNs that came as far as the load balancer and were offered to
servers), cpu (share of all CPUs that were busy), established, lost (of them,
after the flood), silent_during (no answer within 10 s during it), recovered
(packets of theirs that met no entry at the load balancer or the server),
table_full (new flows that found no room in the load balancer's table), tried, ok
(new connections), p90_ms (of those, from when each was due to its answer),
tried_spin, ok_spin, p90_spin_ms.

Fails if an established flow is lost or recovered, if one in a hundred new flows,
spoofed or not, finds no room, and if one in a hundred new connections fails more,
or nine of ten take half a second longer, than with CPU burnt. Where the network
itself loses more than 2 % of the SYNs on their way, time does not decide and one
in twenty may fail.`,
		example: `  proffer-lab experiment flood
  proffer-lab experiment flood --rates 20000,0 --for 2s --json`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.IntSliceVar(&e.Rates, "rates", []int{50_000, 100_000, 200_000, 0}, "SYNs a second, `LIST` with commas; 0: as many as go")
			flags.DurationVar(&e.For, "for", 5*time.Second, "`TIME` of each flood")
			flags.IntVar(&e.Flows, "flows", 1000, "established flows, `N`")
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
