package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/daemon"
)

func newNF() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "nf --config FILE",
		Aliases: []string{"node"}, // the earlier name, in units of systemd
		Short:   "Run network functions of edge mode on this host, in the foreground",
		Long: `Runs a node of edge mode until SIGTERM or Ctrl-C: packets come from edge load
balancers, pass the network functions of their service at the core that the load
balancer chose, and go on to their destinations. docs/operate/edge.md
describes FILE, which is read at the start alone: for another one, drain the node
(weight: 0 in the load balancers' files), and restart it when it has no flows.

The programs, and all that functions remember of flows, end with the daemon.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.CalledAs() == "node" {
				fmt.Fprintln(cmd.ErrOrStderr(), "proffer node is called proffer nf now: change the unit that starts it")
			}
			return runDaemon(cmd, daemonFlags{config: file}, daemon.Datapath)
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration `FILE` (YAML; required)")
	return cmd
}
