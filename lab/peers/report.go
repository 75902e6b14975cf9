package peers

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"proffer/lab/stats"
)

// Report holds a Peers's results.
type Report struct {
	experiment Experiment
	turns      []*turn
}

// Row sums up one peer. A GB is 10⁹ bytes.
type Row struct {
	Way         string  `json:"way"`
	Connections float64 `json:"connections_per_s"` // one request each
	Requests    float64 `json:"requests_per_s"`    // on connections that stay open
	Download    float64 `json:"gbit_per_s"`
	Upload      float64 `json:"upload_gbit_per_s"`
	P50         float64 `json:"p50_us"` // of a connection with one request, open loop
	P99         float64 `json:"p99_us"`
	OverRoute   float64 `json:"p50_over_route"` // per cent, the median of all rounds
	OverECMP    float64 `json:"p50_over_ecmp"`
	Late        float64 `json:"late_p99_us"` // how late the client sent those, in the worst round

	// The balancer's processes and eBPF programs.
	OwnConnection float64 `json:"cpu_us_per_connection"`
	OwnRequest    float64 `json:"cpu_us_per_request"`
	OwnDownload   float64 `json:"cpu_s_per_gb"`
	OwnUpload     float64 `json:"cpu_s_per_upload_gb"`
	// The same, and the machine's softirq time over that of route, but for the agents' programs.
	AroundConnection float64 `json:"with_softirq_us_per_connection"`
	AroundRequest    float64 `json:"with_softirq_us_per_request"`
	AroundDownload   float64 `json:"with_softirq_s_per_gb"`
	AroundUpload     float64 `json:"with_softirq_s_per_upload_gb"`
	// The same, and Proffer's agents on the servers, their programs and processes.
	WithAgentsConnection float64 `json:"with_agents_us_per_connection"`
	WithAgentsRequest    float64 `json:"with_agents_us_per_request"`
	WithAgentsDownload   float64 `json:"with_agents_s_per_gb"`
	WithAgentsUpload     float64 `json:"with_agents_s_per_upload_gb"`
	// All CPU time of the machine over that of route.
	MachineConnection float64 `json:"machine_us_per_connection"`
	MachineRequest    float64 `json:"machine_us_per_request"`
	MachineDownload   float64 `json:"machine_s_per_gb"`
	MachineUpload     float64 `json:"machine_s_per_upload_gb"`
	// Of Proffer's agents, their programs and processes, on the servers.
	Agents float64 `json:"agents_us_per_connection"`
	// How often the LB's programs ran, and how long each time.
	Runs    float64 `json:"runs_per_connection"`
	RunTime float64 `json:"ns_per_run"`

	Counted int `json:"connections"` // of one request, all rounds
	Errors  int `json:"errors"`
}

// sum adds up a peer's turns of a task.
func (r *Report) sum(peer, task string) (all done) {
	for _, t := range r.turns {
		for _, d := range t.done {
			if t.peer != peer || d.task != task {
				continue
			}
			all.work += d.work
			all.took += d.took
			all.errors += d.errors
			all.cost = all.cost.plus(d.cost)
			all.latencies = append(all.latencies, d.latencies...)
			all.late = max(all.late, d.late)
		}
	}
	return all
}

// each is a time for a unit of work, in seconds.
func (d done) each(t time.Duration) float64 {
	if d.work == 0 {
		return 0
	}
	return t.Seconds() / d.work
}

func (d done) rate() float64 { return d.work / d.took.Seconds() }

// reading is a peer's CPU time for a unit of work in four ways of counting, in
// seconds. Around is own and the softirq time over that of route, in which the
// run time of eBPF programs is already, the agents' too; it is never less than own. On a
// kernel that does not take softirq time out of the process that it interrupts
// (CONFIG_IRQ_TIME_ACCOUNTING), a proxy's own has some of it, too. With agents is around and
// all of the agents on the servers. Machine is all CPU time of the machine over its time for
// route.
type reading struct{ own, around, withAgents, machine float64 }

// read is 0 for route, the base of the others.
func (r *Report) read(peer, task string) reading {
	if peer == byRoute {
		return reading{}
	}
	d, route := r.sum(peer, task), r.sum(byRoute, task)
	own := d.each(d.cost.own())
	softirq := d.each(d.cost.softirq-d.cost.programs.Time-d.cost.inAgents) - route.each(route.cost.softirq)
	around := own + max(0, softirq)
	return reading{
		own:        own,
		around:     around,
		withAgents: around + d.each(d.cost.agents),
		machine:    d.each(d.cost.busy) - route.each(route.cost.busy),
	}
}

// in is the reading in other units.
func (r reading) in(unit float64) reading {
	return reading{unit * r.own, unit * r.around, unit * r.withAgents, unit * r.machine}
}

// Units of the readings and the rates.
const (
	µs     = 1e6
	perGB  = 1e9
	toGbit = 8e-9
)

// Summaries are the rows, for each peer.
func (r *Report) Summaries() (rows []Row) {
	for _, p := range peers() {
		rows = append(rows, r.row(p.name))
	}
	return rows
}

// quantile is of latencies, in any order.
func quantile(latencies []float64, q float64) float64 {
	return stats.Quantile(slices.Sorted(slices.Values(latencies)), q)
}

// over is how far a peer's p50 is above another's, in per cent: the median over the
// rounds, because machines are faster at one time than at another.
func (r *Report) over(peer, other string) float64 {
	ours, theirs := r.p50s(peer), r.p50s(other)
	over := make([]float64, len(ours))
	for round := range ours {
		over[round] = 100 * (ours[round]/theirs[round] - 1)
	}
	return quantile(over, 0.5)
}

// p50s are a peer's, in the order of the rounds.
func (r *Report) p50s(peer string) (p50s []float64) {
	for _, t := range r.turns {
		for _, d := range t.done {
			if t.peer == peer && d.task == waiting {
				p50s = append(p50s, quantile(d.latencies, 0.5))
			}
		}
	}
	return p50s
}

func (r *Report) row(peer string) Row {
	connections, waits := r.sum(peer, connecting), r.sum(peer, waiting)
	row := Row{
		Way:         peer,
		Connections: connections.rate(),
		Requests:    r.sum(peer, requesting).rate(),
		Download:    toGbit * r.sum(peer, downloading).rate(),
		Upload:      toGbit * r.sum(peer, uploading).rate(),
		P50:         quantile(waits.latencies, 0.5),
		P99:         quantile(waits.latencies, 0.99),
		OverRoute:   r.over(peer, byRoute),
		OverECMP:    r.over(peer, byECMP),
		Late:        float64(waits.late) / float64(time.Microsecond),
		Agents:      µs * connections.each(connections.cost.agents),
		Counted:     int(connections.work + waits.work),
	}
	if ran := connections.cost.programs; ran.Runs > 0 {
		row.Runs = float64(ran.Runs) / connections.work
		row.RunTime = float64(ran.Time) / float64(ran.Runs)
	}
	for _, c := range []struct {
		task                             string
		unit                             float64
		own, around, withAgents, machine *float64
	}{
		{connecting, µs, &row.OwnConnection, &row.AroundConnection, &row.WithAgentsConnection, &row.MachineConnection},
		{requesting, µs, &row.OwnRequest, &row.AroundRequest, &row.WithAgentsRequest, &row.MachineRequest},
		{downloading, perGB, &row.OwnDownload, &row.AroundDownload, &row.WithAgentsDownload, &row.MachineDownload},
		{uploading, perGB, &row.OwnUpload, &row.AroundUpload, &row.WithAgentsUpload, &row.MachineUpload},
	} {
		read := r.read(peer, c.task).in(c.unit)
		*c.own, *c.around, *c.withAgents, *c.machine = read.own, read.around, read.withAgents, read.machine
	}
	for _, t := range tasks() {
		row.Errors += r.sum(peer, t.name).errors
	}
	return row
}

// JSON is the output of --json: an array, a row a peer.
func (r *Report) JSON() any { return r.Summaries() }

// Holds is that all went right. Neither a latency nor a CPU time decides: each way of
// counting favours one side or the other (docs/evidence/peers.md).
func (r *Report) Holds() error { return r.Went() }

// Went is that every connection went the way that it is named after, that something
// was answered in every task, and that no client of Proffer's met an error: errors
// of others are reported as theirs. Times do not matter.
func (r *Report) Went() error {
	var errs []error
	for _, t := range r.turns {
		connections := uint64(0)
		for _, d := range t.done {
			if d.task == connecting || d.task == waiting {
				connections += uint64(d.work)
			}
			if d.errors > 0 && (t.peer == byHunt || t.peer == bySingle) {
				errs = append(errs, fmt.Errorf("%s, round %d: %s: %d errors", t.peer, t.round+1, d.task, d.errors))
			}
			if d.work == 0 {
				errs = append(errs, fmt.Errorf("%s, round %d: %s: nothing was answered", t.peer, t.round+1, d.task))
			}
		}
		errs = append(errs, t.path.check(t.peer, connections))
	}
	return errors.Join(errs...)
}
