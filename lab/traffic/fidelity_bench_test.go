package traffic

import (
	"fmt"
	"testing"
	"time"

	"proffer/lab/trace"
)

// BenchmarkFidelity compares what is measured over loopback with the exact
// replay: "replay" is the ratio of the means, 1 is perfect, the demo asks for
// less than 1.03. One iteration is a run of 10 s; use -benchtime 1x.
func BenchmarkFidelity(b *testing.B) {
	machine := Machine{Cores: 2, Workers: 32}
	for _, servers := range []int{1, 12} {
		for _, rho := range []float64{0.5, 0.88} {
			b.Run(fmt.Sprintf("servers=%d/load=%v", servers, rho), func(b *testing.B) {
				for seed := range uint64(b.N) {
					rate := rho * float64(servers*machine.Cores) / 0.020
					arrivals := trace.Poisson(seed, int(10*rate), rate, 20*ms)
					report(b, newFarm(b, servers, machine).run(b, arrivals), machine)
				}
			})
		}
	}
}

func report(b *testing.B, result Result, m Machine) {
	rows := result.Rows
	b.ReportMetric(Fidelity(rows, Alike(m)), "replay")
	b.ReportMetric(float64(len(rows)-Count(rows, OK)), "not-ok")
	b.ReportMetric(float64(meanOf(rows, Row.Latency).Microseconds()), "mean-µs")
	b.ReportMetric(float64(result.Schedule.P50.Microseconds()), "lag-p50-µs")
	b.ReportMetric(float64(result.Schedule.P99.Microseconds()), "lag-p99-µs")
	connect := func(r Row) time.Duration { return r.Connected - r.Started }
	b.ReportMetric(float64(meanOf(rows, connect).Microseconds()), "connect-µs")
	if err := result.Schedule.Kept(); err != nil {
		b.Log(err)
	}
}
