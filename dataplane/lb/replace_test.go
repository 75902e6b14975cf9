package lb_test

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestRecordsApart: a record that was replaced serves for the next; a packet that
// reads it meets its own service all the same. One service has
// no way to its transit SID, the other one no server, so every packet stays as it
// is, and a run is many packets.
func TestRecordsApart(t *testing.T) {
	services := []topo.Service{rig.Hunting(2, 4, rig.ViaTransit(1)), rig.Hunting(2, 0, rig.At81)}
	r := rig.NewLB(t, rig.Hits{}, services...)
	r.KnowFarm(t, 0)
	r.LeaveRecords(1) // so that it serves again at once
	stop, ended := make(chan bool), make(chan error)
	var changes atomic.Int64
	go func() {
		for ; ; changes.Add(1) {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			record := r.RecordOf(services[changes.Load()%2].VIP)
			record.Tally++ // which no packet reads
			if err := r.PutRecord(record); err != nil {
				ended <- err
				return
			}
		}
	}()
	before, packets := r.Counts(t), uint64(0)
	for end := time.Now().Add(time.Second); time.Now().Before(end) || changes.Load() < 10; packets += 10_000 {
		o := ebpf.RunOptions{Data: rig.Inward(rig.HuntPort, wire.ACK).Frame(), Repeat: 10_000}
		if _, err := r.Prog.Run(&o); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for i, n := range r.Counts(t) {
		switch n -= before[i]; {
		case r.Names[i] == "drop_no_next_hop" && n < packets: // a run that a signal interrupts runs again
			t.Errorf("%d packets of %d", n, packets)
		case r.Names[i] != "drop_no_next_hop" && n > 0:
			t.Errorf("%s: %d packets of %d; %d changes", r.Names[i], n, packets, changes.Load())
		}
	}
}

// TestReleaseWaits: when Apply waits for packets, all that one may still read is
// there: the tables of records that were replaced or deleted, and the servers.
// It waits once, however many such records there are, and where there is none not
// at all.
func TestReleaseWaits(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 4), rig.Lean(false, 2, rig.At81))
	waits := 0
	before, known := map[uint32]uint32{}, 0 // slot → table
	r.OnWait(func() {
		waits++
		now := map[uint32]bool{}
		for _, slot := range r.UsedSlots() {
			now[slot] = true
		}
		for slot, id := range before {
			if got := tableIn(r, t, slot); !now[slot] && got != id {
				t.Errorf("slot %d holds table %d, held %d", slot, got, id)
			}
		}
		if n := r.Numbered(); n < known {
			t.Errorf("%d servers of %d", n, known)
		}
	})
	for _, c := range []struct {
		next   []topo.Service
		waits  int
		leaves int // server
	}{
		{[]topo.Service{rig.Hunting(2, 4), rig.Lean(true, 2, rig.At81)}, 0, -1},
		{[]topo.Service{rig.Hunting(2, 4), rig.Lean(true, 2, rig.At81)}, 0, -1},
		{[]topo.Service{rig.Hunting(2, 4), rig.Lean(true, 3, rig.At81)}, 1, -1},
		{[]topo.Service{rig.Hunting(3, 4), rig.Lean(true, 2, rig.At81)}, 1, -1},
		{[]topo.Service{rig.Hunting(2, 5), rig.Service(82, topo.Stateless, 1, 3)}, 1, 11},
		{[]topo.Service{rig.Hunting(2, 3)}, 1, 4},
	} {
		clear(before)
		for _, slot := range r.UsedSlots() {
			before[slot] = tableIn(r, t, slot)
		}
		known, waits = r.Numbered(), 0
		if err := r.Configure(rig.LBConfig(c.next...)); err != nil {
			t.Fatal(err)
		}
		if waits != c.waits {
			t.Errorf("waited %d times, want %d", waits, c.waits)
		}
		wantTables(r, t, len(c.next))
		if number, known := numberOf(r, c.leaves); c.leaves >= 0 && known {
			t.Errorf("server %d, which is gone, has number %d", c.leaves, number)
		}
	}
}

// TestApplyFails: one service that cannot be leaves the others as they were, and
// nothing behind; the next configuration is taken.
func TestApplyFails(t *testing.T) {
	before := rig.Hunting(2, 4)
	r := rig.NewLB(t, rig.Hits{}, before, rig.Service(82, topo.Stateless, 1, 3))
	p := rig.Inward(rig.HuntPort, wire.ACK)
	old := rig.Recovered(p, rig.Candidates(t, &before, before.Servers, p.Flow()))
	next := rig.Hunting(3, 4)
	heavy := rig.Service(82, topo.Stateless, 1, 3)
	heavy.Servers[0].Weight = 1 << 16
	if err := r.Configure(rig.LBConfig(next, heavy)); err == nil {
		t.Error("took a weight of 65536")
	}
	wantTables(r, t, 2)
	r.Send(t, p.Frame()).Is(t, "as before", rig.XDPTX, old, "recover")
	r.Reconfigure(t, next, rig.Service(82, topo.Stateless, 1, 3))
	wantTables(r, t, 2)
	r.Send(t, p.Frame()).Is(t, "the next", rig.XDPTX, rig.Recovered(p, rig.Candidates(t, &next, next.Servers, p.Flow())), "recover")
}

// tableIn names the table in a slot.
func tableIn(r *rig.LB, t testing.TB, slot uint32) (id uint32) {
	t.Helper()
	if err := r.Objects().Tables.Lookup(slot, &id); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestMostServices: as many services as there may be, all replaced twice: by
// other tables in the same slots, and by others at other VIPs.
func TestMostServices(t *testing.T) {
	all := func(port, upper int) (services []topo.Service) {
		for i := range topo.MaxServices {
			services = append(services, rig.Hunting(2, 12, func(s *topo.Service) {
				s.Name, s.VIP.Port, s.Buckets = fmt.Sprint(i), uint16(port+i), 7
				s.VIP.Addr = netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: byte(port >> 12), 14: byte(i >> 8), 15: byte(i)})
				s.Servers[upper].Weight = 0
			}))
		}
		return services
	}
	r := rig.NewLB(t, rig.Hits{}, all(10_000, 0)...)
	for i, services := range [][]topo.Service{all(10_000, 1), all(20_000, 2), all(20_000, 3)} {
		r.Cfg.Services = services
		if err := r.Configure(r.Cfg); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
		wantTables(r, t, topo.MaxServices)
		r.KnowFarm(t, 12)
		for _, at := range []int{0, 500, topo.MaxServices - 1} {
			svc := services[at]
			p := rig.Inward(svc.VIP.Port, wire.ACK)
			p.Dst = netip.AddrPortFrom(svc.VIP.Addr, svc.VIP.Port)
			r.Send(t, p.Frame()).Is(t, svc.Name, rig.XDPTX, rig.Recovered(p, rig.Candidates(t, &svc, svc.Servers, p.Flow())), "recover")
		}
	}
	r.Cfg.Services = append(all(20_000, 3), rig.Hunting(2, 4))
	if err := r.Configure(r.Cfg); err == nil {
		t.Error("took one service more than there is room for")
	}
	r.Reconfigure(t, all(20_000, 4)...)
	wantTables(r, t, topo.MaxServices)
}

// TestApplyFailsHalfway: if the kernel's maps have no room for the last of many services,
// the LB knows its state: the next plan starts there and leaves nothing behind.
func TestApplyFailsHalfway(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 4))
	stale, err := r.Plan(r.Cfg)
	if err != nil {
		t.Fatal(err)
	}
	var crowd []topo.Service
	for _, vip := range chained(objects.MaxProbes + 1) {
		crowd = append(crowd, rig.Hunting(2, 6, func(s *topo.Service) { s.VIP = vip }))
	}
	if err := r.Configure(rig.LBConfig(crowd...)); err == nil {
		t.Fatal("a chain took one service more than a packet looks at")
	}
	if err := r.Apply(stale); err == nil {
		t.Error("applied a plan from a state that is gone")
	}
	wantTables(r, t, objects.MaxProbes)
	r.Reconfigure(t, rig.Hunting(2, 4))
	wantTables(r, t, 1)
	p := rig.Inward(rig.HuntPort, wire.ACK)
	r.Send(t, p.Frame()).Is(t, "the service of before", rig.XDPTX, rig.Recovered(p, r.List(t, 0, p.Flow())), "recover")
	if r.Numbered() != 4 {
		t.Errorf("%d servers are numbered, not 4", r.Numbered())
	}
}
