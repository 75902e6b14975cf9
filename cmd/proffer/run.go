package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/daemon"
	"proffer/farm"
	"proffer/ownfile"
)

func newRun() *cobra.Command {
	var flags daemonFlags
	at := daemon.FarmFile{}
	cmd := &cobra.Command{
		Use:   "run [--farm FILE] [--name NAME] [--secrets FILE]",
		Short: "Run this host's role in a farm, in the foreground",
		Long: `Runs what the farm's file has for the node NAME, by default this host's name: LB,
agent of a server, edge LB or nf, until SIGTERM or Ctrl-C. All that this node needs
is derived from the farm's file and the node's secrets, which no other user may
read. docs/operate/farm-file.md describes both.

When either file changes, and at SIGHUP, both are read again and what changed is
applied while packets flow; a file with a mistake changes nothing. However the
daemon ends, its programs go on, and the next daemon takes over their flows.
proffer detach removes them, or --detach at the daemon's end.`,
		Example: "  proffer run --farm /etc/proffer/farm.yaml --name lb1",
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if at.Name == "" {
				if at.Name, err = os.Hostname(); err != nil {
					return fmt.Errorf("find this host's name: %w; state --name", err)
				}
			}
			if at.Secrets == "" {
				at.Secrets = filepath.Join(filepath.Dir(at.Path), "secrets.yaml")
			}
			if serves(cmd.Context(), at) {
				runtime.GOMAXPROCS(1) // as the agent's verb does
			}
			flags.config = at.Path
			return runDaemon(cmd, flags, func(ctx context.Context, _ string, host *daemon.Host) error {
				return daemon.Farm(ctx, at, host)
			}, func(ctx context.Context, _ string) (string, error) { return daemon.FarmControl(ctx, at) })
		},
	}
	cmd.Flags().StringVar(&at.Path, "farm", "/etc/proffer/farm.yaml", "the farm's `FILE`")
	cmd.Flags().StringVar(&at.Name, "name", "", "`NAME` of this node in the farm; default: this host's name")
	cmd.Flags().StringVar(&at.Secrets, "secrets", "", "`FILE` of this node's secrets; default: secrets.yaml beside the farm's file")
	flags.addEnds(cmd)
	return cmd
}

// serves reports whether the node is a server, whose CPUs are the application's. A mistake is told later.
func serves(ctx context.Context, at daemon.FarmFile) bool {
	file, err := ownfile.Read(ctx, at.Path)
	if err != nil {
		return false
	}
	f, _, err := farm.Parse(at.Path, file.Data)
	return err == nil && f.Node(at.Name) != nil && f.Node(at.Name).Role() == farm.Server
}
