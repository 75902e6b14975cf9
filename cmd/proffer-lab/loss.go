package main

import (
	"context"

	"github.com/spf13/cobra"

	"proffer/lab/farmrun"
	"proffer/lab/storms"
)

var _ = registerTrial(lossTrial)

func lossTrial(f *experimentFlags) trial {
	var e storms.Loss
	return trial{
		name:  "loss",
		short: "lose frames on every link: is each connection served once",
		long: `Makes short connections, 200 a second, while every link between the router and
the other nodes loses frames in each direction: by hunt (acceptance dynamic), by
single, and by the router's own route to one server, as if Proffer were not
there. Each server keeps a book of the requests that it served.

--json prints an array of rows, one a method and loss: loss, method, requests,
ok, failed, resets (of those: a RST to the SYN or later), served_twice, unserved
(answered, and in no server's books), accepted_twice (connections with two sockets),
requested_twice (connections with request sockets on two servers after two SYNs at
most; a third SYN meets the candidates in another order), lost_frames.

Fails if a request was served twice, if a connection was accepted or requested
twice, or if a method has more resets than the
plain route. A connection that is not answered within a minute has failed; that
is the network's doing: hunting crosses more links.`,
		example: `  proffer-lab experiment loss
  proffer-lab experiment loss --loss 0.1 --requests 500 --json`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.Float64SliceVar(&e.Losses, "loss", []float64{0.01, 0.05}, "shares of frames to lose, `LIST` with commas")
			flags.IntVar(&e.Requests, "requests", 2000, "connections of each method at each loss, `N`")
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
