package main

import (
	"context"

	"github.com/spf13/cobra"

	"proffer/lab/farmrun"
	"proffer/lab/storms"
)

var _ = registerTrial(resiliencyTrial)

func resiliencyTrial(f *experimentFlags) trial {
	var e storms.Resiliency
	var methods []string
	return trial{
		name:  "resiliency",
		short: "replace servers and LBs together under long flows: which flows are lost (6LB Fig. 11d)",
		long: `Opens long flows through the first of several load balancers, then replaces
one server after the other by a fresh one. The removed host dies at once, and at
the same moment the router turns to the next LB, which has never seen the flows:
every second one is started just then, the others ran since the start and got
every reload (with hunt-no-history all are started just then, and none has a record
of earlier pools). Then all flows exchange data. 6LB Figure 11d does this once.

Methods: hunt asks the candidates of today's pool and of all earlier ones in the
configuration; hunt-no-history asks today's candidates only, as the paper does;
single asks no server and presumes the one that the flow's hash met in the oldest
pool in the configuration; stateless asks no server (consistent hashing).

Flows are offered with acceptance static at half a server's share of flows, by
the load measure sockets, so that about half of them end up with each candidate.

--json prints an array of rows, one a method: method, changes, flows, removed
(flows of removed servers, unavoidable), extra_resets (flows that died although
their server is there), silent (of those: no answer, and no RST), recovered (by
the LBs' counters, over all changes), first_takes (share of flows with their
first candidate), seed, servers, buckets, per_change: change, cold, live,
removed, extra_resets, silent, recovered.

Fails if hunt or single has any extra reset, if hunt-no-history or stateless has none (the
changes prove nothing then), or if the new LB of a hunting method recovers less than 90 % of
the live flows.`,
		example: `  proffer-lab experiment resiliency
  proffer-lab experiment resiliency --methods hunt --flows 5000 --changes 15 --json`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.StringSliceVar(&methods, "methods", []string{"hunt", "hunt-no-history", "single", "stateless"}, "methods to compare, `LIST` with commas")
			flags.IntVar(&e.Flows, "flows", 1000, "long flows, `N`")
			flags.IntVar(&e.Changes, "changes", 10, "replacements of a server, each with another LB, `N`")
			flags.IntVar(&e.Buckets, "buckets", 4096, "lists in the table of candidates, `M`")
		},
		check: func() error {
			e.Servers, e.Seed = f.servers, f.seed
			e.Methods = nil
			for _, m := range methods {
				e.Methods = append(e.Methods, storms.Method(m))
			}
			return e.Check()
		},
		run: func(ctx context.Context, programs string, show func(farmrun.Step)) (finding, error) {
			e.Programs = programs
			return e.Run(ctx, show)
		},
	}
}
