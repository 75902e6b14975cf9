// Command proffer-lab is the laboratory: it shows, breaks, measures, simulates
// and draws the work of the command proffer. One file a verb.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(newRoot())) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "proffer-lab",
		Short: "Demo, experiments, benchmarks, simulator and figures of Proffer",
		Long: `The laboratory of Proffer, a load-aware layer-4 load balancer. demo and experiment
run the real daemons: they need the command proffer beside this one or in $PATH.
sim, model and figures compute; they need no root.

Exit codes: 0 ok, 1 failed, 2 wrong usage.`,
	}
	cli.Root(root, newDemo(), newExperiment(), newBench(), newSim(), newModel(), newFigures())
	root.AddCommand(cli.Elsewhere("is a verb of", "proffer", "lb", "agent", "status", "keys")...)
	return root
}
