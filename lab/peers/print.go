package peers

import (
	"fmt"
	"io"
	"strconv"

	"proffer/lab/figures"
	"proffer/lab/tables"
)

// Print writes the tables.
func (r *Report) Print(w io.Writer) error {
	e := r.experiment
	fmt.Fprintf(w, "%d servers, %d rounds of %v a task, latency at %d connections a second, seed %d\n\n",
		e.Servers, e.Rounds, e.For, latencyRate, e.Seed)
	rows := r.Summaries()
	if err := printRates(w, rows); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nCPU time of the balancer; softirq and machine are counted over route's")
	if err := printCosts(w, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, row := range rows {
		if row.Runs > 0 {
			fmt.Fprintf(w, "The LB's programs of %s run %.1f times a connection, %.0f ns each; its agents need %.1f µs on the servers.\n",
				row.Way, row.Runs, row.RunTime, row.Agents)
		}
	}
	r.printRatios(w)
	return nil
}

func printRates(w io.Writer, rows []Row) error {
	t := tables.New("way", "connections/s", "requests/s", "down Gbit/s", "up Gbit/s", "p50 µs", "p99", "p50 over route", "p50 over ecmp", "errors")
	for _, row := range rows {
		t.Addf("%s\t%.0f\t%.0f\t%.2f\t%.2f\t%.0f\t%.0f\t%+.0f %%\t%+.0f %%\t%d", row.Way, row.Connections, row.Requests,
			row.Download, row.Upload, row.P50, row.P99, row.OverRoute, row.OverECMP, row.Errors)
	}
	return t.Print(w)
}

func printCosts(w io.Writer, rows []Row) error {
	t := tables.New("way", "counted", "µs/connection", "µs/request", "s/GB down", "s/GB up")
	line := func(way, counted string, connection, request, down, up float64) {
		t.Addf("%s\t%s\t%.2f\t%.2f\t%.3f\t%.3f", way, counted, connection, request, down, up)
	}
	for _, row := range rows[1:] {
		line(row.Way, "own", row.OwnConnection, row.OwnRequest, row.OwnDownload, row.OwnUpload)
		line("", "with softirq", row.AroundConnection, row.AroundRequest, row.AroundDownload, row.AroundUpload)
		line("", "with agents", row.WithAgentsConnection, row.WithAgentsRequest, row.WithAgentsDownload, row.WithAgentsUpload)
		line("", "machine", row.MachineConnection, row.MachineRequest, row.MachineDownload, row.MachineUpload)
	}
	return t.Print(w)
}

// printRatios prints how many times as much a proxy needs: its process alone, beside all of
// ours, so that no way of counting favours us.
func (r *Report) printRatios(w io.Writer) {
	ours := r.read(byHunt, connecting)
	for _, proxy := range []string{byHAProxy, byNginx} {
		theirs := r.read(proxy, connecting)
		fmt.Fprintf(w, "A connection costs the process of %s %s times as much as the LB of %s, its programs and the softirq time around them; %s times as much as LB and agents; of the machine %s times.\n",
			proxy, times(theirs.own, ours.around), byHunt, times(theirs.own, ours.withAgents), times(theirs.machine, ours.machine))
	}
}

// times is a ratio, where there is one: a difference may be lost in the noise.
func times(theirs, ours float64) string {
	if theirs <= 0 || ours <= 0 {
		return "?"
	}
	return strconv.FormatFloat(theirs/ours, 'f', 1, 64)
}

// Files are the figure, and a row a peer, round and task.
func (r *Report) Files() []tables.File {
	table := tables.New("way", "round", "task", "work", "seconds", "errors", "processes_s", "programs_s", "runs", "agents_s", "agent_programs_s", "softirq_s", "busy_s")
	for _, t := range r.turns {
		for _, d := range t.done {
			c := d.cost
			table.Add(t.peer, t.round+1, d.task, tables.Digits(d.work, 0), d.took,
				d.errors, c.processes, c.programs.Time, c.programs.Runs, c.agents, c.inAgents, c.softirq, c.busy)
		}
	}
	return []tables.File{figures.File("peers", r.figure), table.CSVFile("peers-rows.csv")}
}

// figure draws the balancers' CPU time.
func (r *Report) figure() (*figures.Figure, error) {
	g := figures.Groups{
		Title:       fmt.Sprintf("CPU time of the balancer, %d servers", r.experiment.Servers),
		Notes:       []string{"With softirq: and the machine's softirq time over that of routing to one server."},
		GroupColumn: "way",
		Series:      []string{"own", "with softirq", "with agents"},
	}
	for _, p := range peers()[1:] {
		g.Groups = append(g.Groups, p.name)
	}
	for _, panel := range []struct {
		task, label, column string
		unit                float64
	}{
		{connecting, "µs a connection", "us_per_connection", µs},
		{requesting, "µs a request", "us_per_request", µs},
		{downloading, "s a GB down", "s_per_gb", perGB},
		{uploading, "s a GB up", "s_per_upload_gb", perGB},
	} {
		boxes := make([][]figures.Box, len(g.Groups))
		for i, name := range g.Groups {
			read := r.read(name, panel.task).in(panel.unit)
			boxes[i] = []figures.Box{{Value: read.own}, {Value: read.around}, {Value: read.withAgents}}
		}
		g.Panels = append(g.Panels, figures.BoxPanel{Y: figures.Axis{Label: panel.label}, Columns: []string{panel.column}, Boxes: boxes})
	}
	return figures.NewGroups(g)
}
