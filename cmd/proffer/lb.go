package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"proffer/cmd/internal/cli"
	"proffer/daemon"
	"proffer/topo"
)

func newLB() *cobra.Command {
	var flags daemonFlags
	cmd := &cobra.Command{
		Use:   "lb --config FILE",
		Short: "Run the load balancer on this host, in the foreground",
		Long: `Runs the load balancer until SIGTERM or Ctrl-C. Packets for the configured
services are offered or steered to servers; all others pass to the kernel
untouched. docs/operate/farm.md describes FILE.

dispatch of a service is ` + modes(false) + `.
For comparison with these there are
  ` + modes(true) + `.

SIGHUP reads FILE and its signal keys again and applies services, servers, weights
and history while packets flow; a file with a mistake changes nothing. However
the daemon ends, its programs go on forwarding, and the next daemon takes over
their flows. proffer detach removes them, or --detach at the daemon's end. While
no daemon runs, next hops stay as they were.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDaemon(cmd, flags, daemon.LB, daemon.LBControl) },
	}
	flags.add(cmd)
	return cmd
}

// modes names the dispatch modes for use, or those for comparison.
func modes(comparison bool) string {
	var names []string
	for _, d := range topo.Dispatches() {
		if d.Comparison() == comparison {
			names = append(names, d.String())
		}
	}
	text, last := strings.Join(names[:len(names)-1], ", "), names[len(names)-1]
	if comparison {
		return strings.Replace(text, ", ecmp,", ",\n  ecmp,", 1) + " and " + last // within 80 columns
	}
	return text + " or " + last
}

// daemonFlags are those of every daemon.
type daemonFlags struct {
	config string
	detach bool
	drain  time.Duration
	reload bool
}

func (f *daemonFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.config, "config", "c", "", "configuration `FILE` (YAML; required)")
	f.addEnds(cmd)
}

// addEnds adds those of a daemon's end.
func (f *daemonFlags) addEnds(cmd *cobra.Command) {
	cmd.Use += " [--detach] [--drain DURATION] [--reload]"
	cmd.Flags().BoolVar(&f.detach, "detach", false, "detach the programs and forget their flows when the daemon ends")
	cmd.Flags().DurationVar(&f.drain, "drain", 0, "at SIGTERM wait for the flows to end, at most `DURATION` such as 10m, then detach")
	cmd.Flags().BoolVar(&f.reload, "reload", false, "have the daemon that runs by FILE read it again, and fail if FILE has a mistake or the daemon refuses it")
}

// runDaemon runs a daemon from the file that --config names, or has it reload; control finds its control socket.
func runDaemon(cmd *cobra.Command, f daemonFlags, run func(context.Context, string, *daemon.Host) error, control func(context.Context, string) (string, error)) error {
	if f.config == "" {
		return cli.BadUsagef("--config FILE is missing: the node's YAML configuration")
	}
	if f.reload {
		at, err := control(cmd.Context(), f.config)
		if err != nil {
			return err
		}
		return daemon.Reload(cmd.Context(), at)
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // a log without a reader ends no daemon
	lines := daemon.NewLines(cmd.ErrOrStderr())
	defer lines.Close()
	host := daemon.Linux(lines)
	host.Detach, host.Drain = f.detach || f.drain > 0, f.drain
	slog.SetDefault(host.Log) // for libraries
	switch err := run(cmd.Context(), f.config, host); {
	case errors.Is(err, context.Canceled): // by a signal, while it waited for a file
		host.Log.Info("ended before it was attached")
		return nil
	case err != nil:
		return cli.Print(lines, cmd, err)
	}
	return nil
}
