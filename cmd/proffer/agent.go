package main

import (
	"runtime"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/daemon"
)

func newAgent() *cobra.Command {
	var flags daemonFlags
	cmd := &cobra.Command{
		Use:   "agent --config FILE",
		Short: "Run the agent of this server, in the foreground",
		Long: `Runs the agent until SIGTERM or Ctrl-C. It decides on the offers for the
configured services by their local load, hands the accepted packets to this
host's TCP, and signals so to the load balancer. The VIP of each service must be
an address of a local interface, such as lo, or of an application behind this
host (owner: table). docs/operate/farm.md describes FILE.

SIGHUP reads FILE and its signal keys again and applies services, thresholds and
load pages while packets flow; a file with a mistake changes nothing. However
the agent ends, its programs go on answering, and the next agent takes over
their flows. proffer detach removes them, or --detach at the agent's end. While
no agent runs, next hops stay as they were, and no load page is read.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The CPUs are the application's. With a second CPU, the Go runtime looks for work there
			// each time that the agent wakes: 1.5 times the CPU time of the agent's samples.
			runtime.GOMAXPROCS(1)
			return runDaemon(cmd, flags, daemon.Agent, daemon.AgentControl)
		},
	}
	flags.add(cmd)
	return cmd
}
