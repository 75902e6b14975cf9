package proof

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"

	"proffer/lab/sim"
)

// BenchmarkEvents plays farm B (c1:2, 128 servers, ρ = .9) and farm A under
// every policy.
func BenchmarkEvents(b *testing.B) {
	farmB, err := sim.FarmB("c1:2")
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range []sim.Farm{farmB, sim.FarmA()} {
		for _, name := range sim.Policies() {
			b.Run(f.Name+"/"+name, func(b *testing.B) { measure(b, f, name, 0.9) })
		}
	}
}

// BenchmarkSize: events a second hardly fall with the number of servers.
func BenchmarkSize(b *testing.B) {
	for _, name := range []string{"hunt:dynamic", "guided", "lsq", "learned", "jsq", "oracle"} {
		for _, n := range []int{100, 1000, 10_000} {
			f, err := sim.FarmB("c1:2")
			if err != nil {
				b.Fatal(err)
			}
			small, big := f.Servers[0], f.Servers[127]
			f.Servers = nil
			for range n / 2 {
				f.Servers = append(f.Servers, small, big)
			}
			f.Default.Requests = 600 * n
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) { measure(b, f, name, 0.9) })
		}
	}
}

// BenchmarkOwnSpeeds: oraclef on servers of which no two are equally fast.
func BenchmarkOwnSpeeds(b *testing.B) {
	for _, discipline := range []sim.Discipline{sim.FIFO, sim.Sharing} {
		for _, n := range []int{100, 1000, 10_000} {
			f := ownSpeeds(n, discipline)
			f.Default.Requests = 600 * n
			b.Run(fmt.Sprintf("%v/%d", discipline, n), func(b *testing.B) { measure(b, f, "oraclef", 0.9) })
		}
	}
}

// ownSpeeds is farm B hom with n servers whose speeds lie between 0.5 and 1.5.
func ownSpeeds(n int, d sim.Discipline) sim.Farm {
	f, _ := sim.FarmB("hom")
	s := f.Servers[0]
	s.Discipline, s.Workers = d, 32
	f.Name, f.Servers = "own speeds", nil
	for i := range n {
		s.Speed = 0.5 + float64(i*7919%n)/float64(n)
		f.Servers = append(f.Servers, s)
	}
	return f
}

func measure(b *testing.B, f sim.Farm, name string, rho float64) {
	p := mustParse(b, name)
	w := f.Load(rho)
	b.ReportAllocs()
	events, requests := 0, 0
	begin := processorTime()
	for seed := uint64(1); b.Loop(); seed++ {
		events += mustRun(b, f, p, w, seed).Events
		requests += w.Requests
	}
	took := processorTime() - begin
	b.ReportMetric(float64(events)/took/1e6, "Mevents/s")
	b.ReportMetric(float64(requests)/took/1e3, "krequests/s")
}

// processorTime is what this process has used of processors, in seconds: on a
// machine that others use too it tells more than the clock on the wall.
func processorTime() float64 {
	var used syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

// TestMemory: a run of 80,000 requests takes 16 MB at most, all that it
// allocated counted, also what it gave back.
func TestMemory(t *testing.T) {
	f, err := sim.FarmB("c1:2")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sim.Policies() {
		p := mustParse(t, name)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		mustRun(t, f, p, f.Load(0.9), 1)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
			t.Errorf("%s allocated %d bytes", name, used)
		}
	}
}
