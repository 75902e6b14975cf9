package edge

import (
	"math"
	"time"

	"proffer/lab/edgesim"
	"proffer/lab/stats"
)

// Row sums up a run. Of the numbers that are stats.Number some runs measure nothing.
type Row struct {
	Figure     string       `json:"figure"`
	Balancer   string       `json:"balancer"`
	Share      float64      `json:"share"`          // the elephant's, of the packets; figure 4
	CPU        stats.Number `json:"cpu_difference"` // of a core, mean over intervals
	CPUTick    stats.Number `json:"cpu_difference_30ms"`
	Throughput float64      `json:"throughput"` // packets served, a second
	Offered    float64      `json:"offered"`    // packets, a second
	Latency    stats.Number `json:"latency_us"` // mean at the core
	Weights    stats.Number `json:"weights_sd"` // of the first node's, of mean 1
	Level      stats.Number `json:"level_s"`    // figure 5: after the second node had joined
	Scale      float64      `json:"scale"`      // of a packet's cost, beside the paper's
	Noise      float64      `json:"report_noise"`

	Chain    string  `json:"chain,omitempty"` // figure 3: the functions; CPU is the distance of the next two
	Payload  int     `json:"payload_bytes,omitempty"`
	Started  float64 `json:"predicted_by_start_cost,omitempty"`
	Measured float64 `json:"measured_load,omitempty"`
	Spread   float64 `json:"measured_sd,omitempty"` // over ticks of 30 ms: the noise of a monitor
	Learned  float64 `json:"predicted_load,omitempty"`
}

// none is a number that was not measured.
var none = stats.Number(math.NaN())

// row sums up a run: of figure 4 after the warm-up; of figure 5 after the loads were level, or after the
// second node joined if they never were.
func (e Experiment) row(r *run) Row {
	row := Row{Figure: r.cell.figure, Balancer: r.cell.balancer, Share: float64(r.cell.share) / 100, Scale: e.scale(), Noise: e.Noise, Level: none, Latency: none}
	from := r.traffic.WarmUp.Seconds()
	if r.cell.spare() {
		from = r.joins()
		row.Level = stats.Number(r.level())
		if row.Level.Exists() {
			from += float64(row.Level)
		}
	}
	samples := r.from(from)
	row.CPU, row.CPUTick = stats.Number(meanApart(samples, e.interval())), stats.Number(meanApart(samples, edgesim.Period/2))
	row.Weights = stats.Number(weightsSD(samples))
	var served, dropped, stayed, elapsed float64
	first, last := samples[0], samples[len(samples)-1]
	for i := range first.core {
		a, b := first.core[i], last.core[i]
		served += float64(b.Served - a.Served)
		dropped += float64(b.Dropped - a.Dropped)
		stayed += float64(b.Stayed - a.Stayed)
		elapsed += float64(b.At-a.At) / float64(len(first.core))
	}
	row.Throughput = served / elapsed * 1e9
	row.Offered = (served + dropped) / elapsed * 1e9
	if served > 0 {
		row.Latency = stats.Number(stayed / served / 1e3)
	}
	return row
}

// interval is that over which loads are compared: it has as many packets as the paper's 30 ms, but for
// the longest ones.
func (e Experiment) interval() time.Duration {
	return min(time.Duration(e.scale()*float64(edgesim.Period)), e.For/4)
}

// weightsSD is the standard deviation of the first node's weight.
func weightsSD(samples []sample) float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, s.weights[0])
	}
	return stats.Deviation(all)
}

// atPaper is the latency at the paper's cost of a packet, in µs.
func (row Row) atPaper() stats.Number { return row.Latency / stats.Number(row.Scale) }

// predictedRow is one of figure 3. The goals are of predictions by the start's costs, as the paper's.
func predictedRow(p PredictionRow) Row {
	return Row{Figure: "3", Balancer: "model", CPU: stats.Number(math.Abs(p.Started - p.Measured)), CPUTick: none, Latency: none, Weights: none, Level: none,
		Throughput: p.Rate, Offered: p.Rate, Scale: float64(predictedCost) / float64(paperCost),
		Chain: p.Chain, Payload: p.Payload, Started: p.Started, Measured: p.Measured, Spread: p.Spread, Learned: p.Learned}
}

// Rows are the results, a run each.
func (r *Report) Rows() []Row {
	rows := []Row{}
	for _, p := range r.predicted {
		rows = append(rows, predictedRow(p))
	}
	for _, run := range r.runs {
		rows = append(rows, r.experiment.row(run))
	}
	return rows
}

// JSON is the output of --json: an array, a row a run.
func (r *Report) JSON() any { return r.Rows() }

// predictedCost is that of figure 3's packets.
const predictedCost = 10 * time.Microsecond
