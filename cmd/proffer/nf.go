package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/daemon"
)

func newNF() *cobra.Command {
	var flags daemonFlags
	cmd := &cobra.Command{
		Use:     "nf --config FILE",
		Aliases: []string{"node"}, // the earlier name, in units of systemd
		Short:   "Run network functions of edge mode on this host, in the foreground",
		Long: `Runs a node of edge mode until SIGTERM or Ctrl-C: packets come from edge load
balancers, pass the network functions of their service at the core that the load
balancer chose, and go on to their destinations. docs/operate/edge.md
describes FILE.

SIGHUP reads FILE again and applies chains, load balancers, client networks and
cores while packets flow; a file with a mistake changes nothing. The keys name,
control, pin, number and link, and functions in user space, need a restart.
However the daemon ends, its programs go on, and the next daemon takes over their
flows, NAT bindings and firewall states. proffer detach removes them, or --detach
at the daemon's end. With --drain the node reports at SIGTERM that it takes no new
flows. While no daemon runs, next hops stay as they were, flows that are over
stay, and packets of functions in user space are dropped.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.CalledAs() == "node" {
				fmt.Fprintln(cmd.ErrOrStderr(), "proffer node is called proffer nf now: change the unit that starts it")
			}
			return runDaemon(cmd, flags, daemon.NF, daemon.NFControl)
		},
	}
	flags.add(cmd)
	return cmd
}
