package traffic

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"proffer/lab/trace"
	"proffer/lab/traffic/responder"
)

func TestReplayKeepsServersApart(t *testing.T) {
	rows := []Row{
		{Server: "b", Intended: 5 * ms, Service: 10 * ms},
		{Server: "a", Intended: 10 * ms, Service: 10 * ms}, // out of order, as rows may be
		{Server: "a", Intended: 0, Service: 20 * ms},
		{Server: "", Intended: 1 * ms, Service: time.Hour},
	}
	// On a: alone until 10 ms, then both share and end together at 30 ms.
	want := []time.Duration{10 * ms, 20 * ms, 30 * ms, 0}
	if got := Replay(rows, Alike(responder.Machine{Cores: 1, Workers: 2})); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFidelityComparesWhatWasAnswered(t *testing.T) {
	rows := []Row{
		{Server: "a", Service: 10 * ms, Done: 11 * ms, Outcome: OK},
		{Server: "a", Intended: 50 * ms, Service: 10 * ms, Done: 60 * ms, Outcome: OK},
		{Server: "a", Intended: 90 * ms, Service: 10 * ms, Done: time.Hour, Outcome: Reset},
		{Intended: 90 * ms, Service: 10 * ms, Done: time.Hour, Outcome: Refused},
	}
	if got := Fidelity(rows, Alike(responder.Machine{Cores: 1, Workers: 2})); math.Abs(got-1.05) > 1e-12 {
		t.Errorf("got %v, want 21 ms / 20 ms", got)
	}
}

// BenchmarkFidelity compares what is measured over loopback with the exact
// replay: "replay" is the ratio of the means, 1 is perfect, the demo asks for
// less than 1.03. One iteration is a run of 10 s; use -benchtime 1x.
func BenchmarkFidelity(b *testing.B) {
	machine := responder.Machine{Cores: 2, Workers: 32}
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

func report(b *testing.B, result Result, m responder.Machine) {
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
