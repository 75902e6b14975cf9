package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/dataplane"
	"proffer/dataplane/remains"
)

func newDetach() *cobra.Command {
	return &cobra.Command{
		Use:   "detach",
		Short: "Remove the programs and flows that ended daemons left",
		Long: `Removes every trace of daemons of this host, or of this network namespace,
that have ended: the XDP programs and those on the way out of a link, their pins
in any BPF file system, and with them their flows, and a clsact qdisc that was
made for them and is empty. Prints each directory of pins that it removed.
Programs, filters and qdiscs of others stay as they are. A daemon that runs
keeps all of its own, and the exit code is 1: stop it first.

Connections through this load balancer or to this server stop until another
daemon runs. Use it to end Proffer on a host, or when a daemon does not start
because an earlier one ran under another name or pin.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := dataplane.Preflight(); err != nil {
				return err
			}
			removed, err := remains.Remove()
			for _, line := range removed {
				fmt.Fprintln(cmd.OutOrStdout(), line)
			}
			return err
		},
	}
}
