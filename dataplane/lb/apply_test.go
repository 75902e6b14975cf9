package lb_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// largeFarm is n servers, more than farm has, of which one drains; -1: none.
func largeFarm(n, drained int) []topo.Server {
	servers := make([]topo.Server, n)
	for i := range servers {
		a := netip.MustParseAddr("fd00:0:0:100::").As16()
		binary.BigEndian.PutUint16(a[6:], uint16(0x1000+i))
		servers[i] = topo.Server{Name: fmt.Sprint("s", i), Locator: netip.PrefixFrom(netip.AddrFrom16(a), 64), Weight: 1}
	}
	if drained >= 0 {
		servers[drained].Weight = 0
	}
	return servers
}

// cpuTime is the CPU time of this process, or of this thread, in ms.
func cpuTime(b *testing.B, owner int) float64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(owner, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
}

// traffic runs the LB's program on a thread of its own until stopped, which
// returns how many packets it ran and the CPU time of that thread.
func traffic(b *testing.B, r *rig.LB) (stop func() (packets int, cpu float64)) {
	var end atomic.Bool
	type result struct {
		packets int
		cpu     float64
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		before, n := cpuTime(b, unix.RUSAGE_THREAD), 0
		for frame := rig.Inward(rig.HuntPort, wire.ACK).Frame(); !end.Load(); n++ {
			r.Run(b, frame)
		}
		done <- result{n, cpuTime(b, unix.RUSAGE_THREAD) - before}
	}()
	return func() (int, float64) {
		end.Store(true)
		res := <-done
		return res.packets, res.cpu
	}
}

// BenchmarkApply is a snapshot in which one of 1,000 servers starts to drain and
// another ends to: one table is new, today's of before is the history; and one
// in which nothing changes. CPU time is the whole process's without the thread of
// the traffic.
func BenchmarkApply(b *testing.B) {
	for _, c := range []struct {
		name    string
		changed bool
	}{{"pool", true}, {"nothing", false}} {
		b.Run(c.name, func(b *testing.B) { benchmarkApply(b, c.changed) })
	}
}

func benchmarkApply(b *testing.B, changed bool) {
	const servers = 1000
	var states []topo.Service // more than the LB remembers tables of
	for i := range 8 {
		states = append(states, rig.Hunting(2, 0, func(s *topo.Service) {
			s.Buckets, s.Servers = 65537, largeFarm(servers, i)
			s.History = []topo.Version{{Servers: largeFarm(servers, (i+7)%8)}}
		}))
	}
	if !changed {
		states = states[:1]
	}
	r := rig.NewLB(b, rig.Hits{}, states[0])
	hops := topo.NextHops{netip.MustParsePrefix("fd00::/16"): rig.RouterMAC}
	if err := r.SetNextHops(hops); err != nil {
		b.Fatal(err)
	}
	stop := traffic(b, r)
	before := cpuTime(b, unix.RUSAGE_SELF)
	for i := 0; b.Loop(); i++ {
		if err := r.Configure(rig.LBConfig(states[i%len(states)])); err != nil {
			b.Fatal(err)
		}
	}
	reportCPU(b, before, stop)
}

// BenchmarkSetNextHops is a change of one of 1,000 servers' neighbours.
func BenchmarkSetNextHops(b *testing.B) {
	svc := rig.Hunting(2, 0, func(s *topo.Service) { s.Servers = largeFarm(1000, -1) })
	r := rig.NewLB(b, rig.Hits{}, svc)
	stop := traffic(b, r)
	before := cpuTime(b, unix.RUSAGE_SELF)
	for i := 0; b.Loop(); i++ {
		hops := topo.NextHops{netip.MustParsePrefix("::/0"): rig.RouterMAC}
		for j, s := range svc.Servers {
			hops[s.Locator] = rig.HopMAC(j)
		}
		hops[svc.Servers[i%1000].Locator] = topo.MAC{2, 1, 0, 0, byte(i >> 8), byte(i)}
		if err := r.SetNextHops(hops); err != nil {
			b.Fatal(err)
		}
	}
	reportCPU(b, before, stop)
}

// reportCPU stops the traffic and reports an operation's CPU time beside it.
func reportCPU(b *testing.B, before float64, stop func() (int, float64)) {
	b.Helper()
	cpu := cpuTime(b, unix.RUSAGE_SELF) - before
	packets, theirs := stop()
	if packets == 0 {
		b.Error("no traffic")
	}
	b.ReportMetric((cpu-theirs)/float64(b.N), "cpu-ms/op")
}
