package main

import (
	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/daemon"
)

func newEdge() *cobra.Command {
	var flags daemonFlags
	cmd := &cobra.Command{
		Use:   "edge --config FILE",
		Short: "Run an edge load balancer on this host, in the foreground",
		Long: `Runs the load balancer of edge mode until SIGTERM or Ctrl-C: between a client
network and the world, it sends every flow through the network functions of a
core of a datapath node, and levels the cores. docs/operate/edge.md describes
FILE.

When the average core is above 95 %, the command of the key replica is run, at
most once in 10 s and one at a time, for a minute at most. It starts one of the
nodes that FILE lists and that are down: $PROFFER_DOWN has their names. The node
joins by its first answer to a probe. The log has the command's end and output.

SIGHUP reads FILE again and applies nodes, weights, services and prefixes while
packets flow; a file with a mistake changes nothing. The keys name, control, pin,
flow_key, clients, world, flow_table and recovery need a restart. However the
daemon ends, its programs go on, and the next daemon takes over their flows.
proffer detach removes them, or --detach at the daemon's end: then, and before the
first start, this host is a router, which would send the clients' packets past
firewall and NAT: rules of routing have to drop them. The log and "proffer status"
name those that are missing, as commands. While no daemon runs, next hops and
weights stay as they were, and no node is found down.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDaemon(cmd, flags, daemon.Edge, daemon.EdgeControl)
		},
	}
	flags.add(cmd)
	return cmd
}
