// Command proffer is the load balancer and its agent, and an operator's tools
// beside them: one file a verb. Experiments and figures are cmd/proffer-lab.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"proffer/cmd/internal/cli"
	_ "proffer/cmd/internal/early"
)

func main() { os.Exit(cli.Main(newRoot(), os.Interrupt, unix.SIGTERM)) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "proffer",
		Short: "A load-aware layer-4 load balancer for Linux",
		Long: `Proffer offers each new connection to a short list of candidate servers, inside
the packet itself (IPv6 Segment Routing), and the server that has room takes it.
The demo, experiments, benchmarks, simulator and figures are a command of their
own, proffer-lab.

Exit codes: 0 ok, 1 failed, 2 wrong usage.`,
	}
	cli.Root(root, newLB(), newAgent(), newEdge(), newNF(), newStatus(), newKeys(), newPools(), newInit(), newRun(), newCheck(), newExample(), newSchema(), newServerSetup(), newDetach(), newVersion())
	root.AddCommand(cli.Elsewhere("moved to", "proffer-lab", "demo", "experiment", "bench", "sim", "model", "figures")...)
	return root
}
