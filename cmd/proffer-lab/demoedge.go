package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/lab/edge"
	"proffer/lab/farmrun"
	"proffer/topo"
)

// edgeDemoFlags are the flags of demo edge before they are checked.
type edgeDemoFlags struct {
	tail
	demo edge.Demo
}

func newEdgeDemo() *cobra.Command {
	f := &edgeDemoFlags{tail: tail{of: "demo"}}
	cmd := &cobra.Command{
		Use:   "edge",
		Short: "Show network functions at the edge, balanced by a model of their cost",
		Long: `Builds an edge on this machine (client network, LB, two datapath nodes, world), and runs
the real daemons in namespaces. Flows go by a firewall and source NAT: curl, iperf3 (outward,
then inward) and DNS-like questions. The world asks the client, too, by curl and DNS-like
questions, at addresses without NAT. A table shows the cores meanwhile: load as the LB predicts it, in the mean
of its ticks since the last line, and as the node measures it, weight for new flows, flows, packets. Each node has one virtual core, on
which a packet takes 100 µs (docs/design/edge.md). Needs root, curl and iperf3; removes all it made, also on
Ctrl-C.

Balancers: ` + strings.Join(edge.Balancers(), ", ") + `.

--json prints one object: balancer, seconds, cores (node, predicted, measured, weight: means; flows,
packets), curl, curl_inward and dns (asked, answered), dns_p50_ms, iperf3_up_mbit, iperf3_down_mbit,
nat_bound (flows), firewall_denied (packets). --out gets the loads and weights over time as SVG, PNG and CSV.

Fails if curl or the DNS-like questions got no answer at all, or NAT and firewall had no part.`,
		Example: "  proffer-lab demo edge\n  proffer-lab demo edge --balancer wrr --for 10s --json",
		Args:    cli.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, f.check, f.measure) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.demo.Balancer, "balancer", topo.ByModel.String(), "the LB's balancer, `NAME`")
	flags.DurationVar(&f.demo.For, "for", 20*time.Second, "how long traffic flows, `TIME`, 50s at most")
	f.flag(flags)
	flags.StringVar(&f.out, "out", "demo-out", "`FOLDER` for the pictures")
	flags.BoolVar(&f.json, "json", false, "print one JSON object instead of the table")
	return cmd
}

func (f *edgeDemoFlags) check() error {
	if err := f.demo.Check(); err != nil {
		return err
	}
	if !slices.Contains(edge.Balancers(), f.demo.Balancer) {
		return fmt.Errorf("--balancer: unknown balancer %q: want one of %s", f.demo.Balancer, strings.Join(edge.Balancers(), ", "))
	}
	return nil
}

func (f *edgeDemoFlags) measure(ctx context.Context, show *progress) (finding, error) {
	f.demo.Programs = f.programs
	fmt.Fprintf(show.w, "building an edge with two nodes; it takes about %s\n", farmrun.Left(f.demo.For+3*time.Second))
	return f.demo.Run(ctx, (&liveTable{progress: show}).update)
}

// liveTable is a table of cores that renews itself at a terminal, and lines now and then elsewhere.
type liveTable struct {
	*progress
	lines int // that stand there
}

func (t *liveTable) update(v edge.View) {
	if !t.live {
		t.progress.update(edgeLine(v), false)
		return
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%.0f of %.0f s\n", v.Seconds, v.Of)
	if err := edge.PrintCores(&text, v.Cores); err != nil {
		return
	}
	if t.lines > 0 { // back to its first line, and clear from there
		fmt.Fprintf(t.w, "\x1b[%dA\x1b[J", t.lines)
	}
	t.lines = strings.Count(text.String(), "\n")
	io.WriteString(t.w, text.String())
}

// edgeLine is the cores in a line.
func edgeLine(v edge.View) string {
	line := fmt.Sprintf("[%.0f/%.0f s]", v.Seconds, v.Of)
	for _, c := range v.Cores {
		line += fmt.Sprintf("  %s: load %.0f %% predicted, %.0f %% measured, weight %.2f, %d flows", c.Node, 100*c.Predicted, 100*c.Measured, c.Weight, c.Flows)
	}
	return line
}
