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

var _ = registerTrial(edgeTrial)

func edgeTrial(*experimentFlags) trial {
	var e edge.Experiment
	return trial{
		name:  "edge",
		short: "measure EdgeBalance's figures on real daemons: prediction, an elephant flow, a node that is added (EdgeBalance Figs. 3–5)",
		long: `Builds an edge (client network, LB, two datapath nodes, world), runs the real daemons,
and sends each balancer the same datagrams: model (loads by the packets and their
costs), monitor (loads as nodes measure them) and wrr (equal weights).

Each node has one virtual core, by calculation, so that imbalance costs packets and
latency though all share the machine's CPUs (docs/design/edge.md). A packet takes --cost in
place of the paper's 0.7 µs, and packets are as much rarer; the interval over which
loads are compared is 30 ms by that scale, a quarter of --for at most.

Figures: 3 (the load of a real core as the LB predicts it by the costs that the node measured at its start, as
in the paper, and as it learns costs from earlier loads of the core; beside the kernel's measurement, at
10 µs a packet; needs two CPUs), 4 (an elephant has 7 to 47 % of the packets, mice of 10 packets the rest) and 5
(the traffic doubles after 9 s, and a second node joins). The whole takes some nine
minutes, --quick less than four.

--json prints an array, a row a run: figure, balancer, share (the elephant's),
cpu_difference and cpu_difference_30ms (of the two cores, 1 is a core; over the scaled
interval, or all of a shorter rest, and over 30 ms), throughput and offered (packets a second), latency_us (mean
at the core), weights_sd (of the first node's weight, of mean 1), level_s (figure 5: when loads were
within 4 points after the second node joined, and so in the mean of the next second), scale and report_noise; and of
figure 3 chain, payload_bytes, predicted_by_start_cost, measured_load (cpu_difference is the distance of these
two), measured_sd (over 30 ms) and predicted_load (as the LB learns). A number that was not measured, or a time that did not come, is
null. --servers has no effect.

Fails if the generator could not keep the schedule of a run or figure 5's second node did not join, and, without --quick, if
with the elephant of 47 % model's cores are more than 3 % apart, it serves less than 1.2
times wrr's packets or its latency is more than a third of monitor's or wrr's, if in figure 5 its
loads are not level within a second, or if in figure 3 predictions by the start's costs are more than 1.8 points off
on average or 3 anywhere.`,
		example: `  proffer-lab experiment edge --quick --out out
  proffer-lab experiment edge --figures 4 --balancers model,wrr`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.StringSliceVar(&e.Figures, "figures", nil, "figures to make, by number, `LIST` with commas; none: all")
			flags.StringSliceVar(&e.Balancers, "balancers", nil, "only these balancers, `LIST` with commas; none: all")
			flags.IntSliceVar(&e.Shares, "shares", nil, "elephant's shares of the packets in figure 4, `LIST` in % with commas; none: 7,17,27,37,47")
			flags.DurationVar(&e.Cost, "cost", 70*time.Microsecond, "`TIME` of a packet at a virtual core")
			flags.DurationVar(&e.For, "for", 6*time.Second, "how long each run of figure 4 counts, after 1.5 s to warm up, `D`")
			flags.Float64Var(&e.Noise, "report-noise", 0, "standard deviation of the loads that nodes report to monitor, in parts of a core, `X`: the virtual core knows its load, a real one's measurement has noise")
			flags.BoolVar(&e.Quick, "quick", false, "shorter runs, fewer shares: less than four minutes")
		},
		ready: func() error {
			if e.Quick {
				e.For = min(e.For, 3*time.Second)
			}
			return nil
		},
		action: does(&e, nil, &e.Seed, &e.Programs),
	}
}

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
