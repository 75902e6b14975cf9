package main

import (
	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/daemon"
)

func newAgent() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "agent --config FILE",
		Short: "Run the agent of this server, in the foreground",
		Long: `Runs the agent until SIGTERM or Ctrl-C, then detaches it. It decides on the
offers for the configured services by their local load, hands the accepted
packets to this host's TCP, and signals so to the load balancer. The VIP of each service
must be an address of a local interface, such as lo, or of an application behind
this host (owner: table). docs/operators.md describes FILE.

SIGHUP reads the signal keys again. If the agent is killed, its programs go on
answering, and the next agent takes over their flows.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDaemon(cmd, path, daemon.Agent) },
	}
	configFlag(cmd, &path)
	return cmd
}
