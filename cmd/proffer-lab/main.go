// Command proffer-lab is the laboratory: it shows, breaks, measures, simulates
// and draws the work of the command proffer. One file a verb.
package main

import (
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"proffer/cmd/internal/cli"
)

func main() {
	// A pipe without a reader, as `| head` leaves it, is a write error and no end: the
	// handler keeps Go from ending the process at a write to stdout or stderr.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	os.Exit(cli.Main(newRoot(), endings()...))
}

// endings are the signals that end a process unless it handles them (signal(7)), but for
// SIGKILL and those of its own faults: namespaces and daemons are to go with it. SIGHUP is
// a closed terminal.
func endings() []os.Signal {
	return []os.Signal{
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGABRT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTERM,
		unix.SIGSTKFLT, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGIO, unix.SIGPWR, unix.SIGSYS,
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "proffer-lab",
		Short: "Demo, experiments, benchmarks, simulator and figures of Proffer",
		Long: `The laboratory of Proffer, a load-aware layer-4 load balancer. demo and experiment
run the real daemons: they need the command proffer beside this one or in $PATH.
sim, model and figures compute; they need no root. results lists what is kept of all.

Exit codes: 0 ok, 1 failed, 2 wrong usage.`,
	}
	cli.Root(root, newDemo(), newExperiment(), newBench(), newSim(), newModel(), newFigures(), newResults(), newServe())
	root.AddCommand(cli.Elsewhere("is a verb of", "proffer", "lb", "agent", "status", "keys")...)
	return root
}
