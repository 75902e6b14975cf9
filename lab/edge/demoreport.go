package edge

import (
	"context"
	"errors"
	"fmt"
	"io"

	"proffer/lab/figures"
	"proffer/lab/tables"
)

// DemoReport holds an Demo's result.
type DemoReport struct {
	experiment Demo
	samples    []sample

	Balancer string  `json:"balancer"`
	Seconds  float64 `json:"seconds"`
	Cores    []Core  `json:"cores"` // loads and weights are means
	Outward  Asked   `json:"curl"`
	Inward   Asked   `json:"curl_inward"` // from the world
	DNS      Asked   `json:"dns"`
	DNSP50   float64 `json:"dns_p50_ms"`
	Up       float64 `json:"iperf3_up_mbit"`
	Down     float64 `json:"iperf3_down_mbit"`
	Bound    uint64  `json:"nat_bound"`       // flows
	Denied   uint64  `json:"firewall_denied"` // packets
}

// sum asks the daemons once more, and sums up.
func (r *DemoReport) sum(ctx context.Context, farm *farm, t *demoTraffic) error {
	s, lb, err := farm.sample(ctx, r.samples[0].at[0])
	if err != nil {
		return err
	}
	first, last := r.samples[0], r.samples[len(r.samples)-1]
	r.Balancer, r.Seconds = lb.Edge.Balancer, last.seconds-first.seconds
	r.Cores = r.view(lb, first, last).Cores
	for i := range r.Cores {
		c := &r.Cores[i]
		c.Weight = 0
		for _, sample := range r.samples {
			c.Weight += sample.weights[i] / float64(len(r.samples))
		}
		c.Packets = s.core[i].Served + s.core[i].Dropped
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Outward, r.Inward, r.DNS, r.DNSP50, r.Up, r.Down = t.outward, t.inward, t.dns, 1e3*t.p50(), t.up, t.down
	for _, n := range farm.bed.Nodes {
		status, err := farm.status(ctx, n)
		if err != nil {
			return err
		}
		r.Bound += status.Counters["nat_bound"]
		r.Denied += status.Counters["drop_firewall_denied"]
	}
	return nil
}

// JSON is the output of --json.
func (r *DemoReport) JSON() any { return r }

// Print writes the result for a reader.
func (r *DemoReport) Print(w io.Writer) error {
	fmt.Fprintf(w, "balancer %s, %.0f s; loads and weights are means\n\n", r.Balancer, r.Seconds)
	if err := PrintCores(w, r.Cores); err != nil {
		return err
	}
	fmt.Fprintf(w, `
curl, from the client by NAT    %d of %d answered
curl, from the world            %d of %d answered
DNS-like, both ways             %d of %d answered, half of them within %.2f ms
iperf3, by NAT                  %.1f Mbit/s outward, %.1f Mbit/s inward
flows that NAT bound            %d
packets that a firewall denied  %d
`, r.Outward.Answered, r.Outward.Asked, r.Inward.Answered, r.Inward.Asked, r.DNS.Answered, r.DNS.Asked, r.DNSP50, r.Up, r.Down, r.Bound, r.Denied)
	return nil
}

// PrintCores writes the table of cores.
func PrintCores(w io.Writer, cores []Core) error {
	t := tables.New("node", "predicted", "measured", "weight", "flows", "packets")
	for _, c := range cores {
		t.Addf("%s\t%.1f %%\t%.1f %%\t%.2f\t%d\t%d", c.Node, 100*c.Predicted, 100*c.Measured, c.Weight, c.Flows, c.Packets)
	}
	return t.Print(w)
}

// Holds is that each kind of traffic got answers, and that NAT and firewall had their part.
func (r *DemoReport) Holds() error {
	var errs []error
	for name, n := range map[string]int{"curl from the client": r.Outward.Answered, "curl from the world": r.Inward.Answered, "DNS-like questions": r.DNS.Answered} {
		if n == 0 {
			errs = append(errs, fmt.Errorf("%s: nothing was answered", name))
		}
	}
	if r.Bound == 0 || r.Denied == 0 {
		errs = append(errs, fmt.Errorf("NAT bound %d flows, firewalls denied %d packets; want some of both", r.Bound, r.Denied))
	}
	return errors.Join(errs...)
}

// Files are the picture of the loads and the weights over time.
func (r *DemoReport) Files() []tables.File { return []tables.File{figures.File("edge", r.figure)} }

func (r *DemoReport) figure() (*figures.Figure, error) {
	c := figures.Chart{
		Title: "An edge: loads of two cores, and weights for new flows",
		Notes: []string{fmt.Sprintf("balancer %s; iperf3 outward, then inward; curl and DNS-like questions both ways", r.Balancer)},
		X:     figures.Axis{Label: "time (s)", Column: "time_s"},
	}
	weights := figures.Panel{Y: figures.Axis{Label: "weight", Column: "weight", To: 2.05}}
	for i, core := range r.Cores {
		load := figures.Panel{Y: figures.Axis{Label: core.Node + ": load (%)", Column: core.Node + "_load_percent", To: 100}}
		predicted, measured, weight := figures.Curve{Name: "predicted"}, figures.Curve{Name: "measured"}, figures.Curve{Name: "weight of " + core.Node}
		for k, s := range r.samples[1:] {
			predicted.Points = append(predicted.Points, figures.Point{X: s.seconds, Y: 100 * predictedBetween(r.samples[k], s, demoCost)[i]})
			measured.Points = append(measured.Points, figures.Point{X: s.seconds, Y: 100 * loadsBetween(r.samples[k], s)[i]})
			weight.Points = append(weight.Points, figures.Point{X: s.seconds, Y: s.weights[i]})
		}
		load.Curves = []figures.Curve{predicted, measured}
		c.Panels = append(c.Panels, load)
		weights.Curves = append(weights.Curves, weight)
	}
	c.Panels = append(c.Panels, weights)
	return figures.NewChart(c)
}
