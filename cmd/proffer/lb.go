package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/daemon"
)

func newLB() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "lb --config FILE",
		Short: "Run the load balancer on this host, in the foreground",
		Long: `Runs the load balancer until SIGTERM or Ctrl-C, then detaches it. Packets for
the configured services are offered or steered to servers; all others pass to
the kernel untouched. docs/operators.md describes FILE.

SIGHUP reads FILE and its signal keys again and applies services, servers, weights
and history while packets flow; a file with a mistake changes nothing. If the
daemon is killed, its programs go on forwarding, and the next daemon takes
over their flows.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDaemon(cmd, path, daemon.LB) },
	}
	configFlag(cmd, &path)
	return cmd
}

// runDaemon runs a daemon from the file that --config names.
func runDaemon(cmd *cobra.Command, path string, run func(context.Context, string, *daemon.Host) error) error {
	if path == "" {
		return cli.BadUsagef("--config FILE is missing: the node's YAML configuration")
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	return run(cmd.Context(), path, daemon.Linux(log))
}

// configFlag adds the flag that every daemon needs.
func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVarP(path, "config", "c", "", "configuration `FILE` (YAML; required)")
}
