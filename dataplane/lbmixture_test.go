package dataplane

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/config"
	"proffer/topo"
)

// either is a frame and what may leave for it: by one table or by the other.
type either struct {
	frame    []byte
	one, two []byte
}

// eithers are packets of unknown flows to two states of one service, which
// differ in everybody who is asked.
func (r *lbRig) eithers(t testing.TB, flows int, one, two topo.Service) (out []either) {
	t.Helper()
	for i := range flows {
		p := inward(one.VIP.Port, ack)
		p.src = netip.AddrPortFrom(clientAddr, uint16(clientPort+i))
		out = append(out, either{
			frame: p.frame(),
			one:   recovered(p, candidates(t, &one, one.Servers, p.flow())),
			two:   recovered(p, candidates(t, &two, two.Servers, p.flow())),
		})
	}
	return out
}

// whole runs the packets while change is called again and again, at least so
// many times, and checks that each is sent by one table or by the other. What
// ends up in both counts shows that both were met.
func (r *lbRig) whole(t *testing.T, packets []either, times int, change func(i int) error) (ones, twos int) {
	t.Helper()
	ended := make(chan error)
	go func() {
		for i := range times {
			if err := change(i); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	wrong := 0
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			if wrong > 0 {
				t.Errorf("%d packets of %d were sent by no whole table", wrong, wrong+ones+twos)
			}
			return ones, twos
		default:
		}
		r.forgetRetries(t)
		for _, p := range packets {
			switch out := r.run(t, p.frame).frame; {
			case bytes.Equal(out, p.one):
				ones++
			case bytes.Equal(out, p.two):
				twos++
			default:
				if wrong++; wrong == 1 {
					t.Errorf("no table's:\n got %x\n one %x\n two %x", out, p.one, p.two)
				}
			}
		}
	}
}

// lean is a service over a farm that stands still, in which half of the servers
// drain: who takes flows differs, who is known does not.
func lean(upper bool, choices int, change ...func(*topo.Service)) topo.Service {
	drain := func(s *topo.Service) {
		for i := range s.Servers {
			if (i < 6) == upper {
				s.Servers[i].Weight = 0
			}
		}
	}
	return hunting(choices, 12, append(change, drain)...)
}

func at81(s *topo.Service)        { s.VIP.Port = 81 }
func largerTable(s *topo.Service) { s.Buckets = 509 }

// TestApplyAtomic: docs/failures.md, reload under traffic: whatever leaves
// belongs wholly to one of the two tables.
func TestApplyAtomic(t *testing.T) {
	alone := func(upper bool, choices int) topo.Service {
		svc := lean(upper, choices)
		svc.Servers = svc.Servers[:6]
		if !upper {
			svc.Servers = farm(12)[6:]
		}
		for i := range svc.Servers {
			svc.Servers[i].Weight = 1
		}
		return svc
	}
	type state []topo.Service
	for name, c := range map[string]struct{ one, two state }{
		"the table":               {state{lean(false, 2)}, state{lean(true, 2)}},
		"the table and a choice":  {state{lean(false, 2)}, state{lean(true, 3)}},
		"the size of the table":   {state{lean(false, 2)}, state{lean(true, 2, largerTable)}},
		"the servers":             {state{alone(false, 2)}, state{alone(true, 2)}},
		"the servers and choices": {state{alone(false, 2)}, state{alone(true, 3)}},
		"two services":            {state{lean(false, 2), lean(true, 2, at81)}, state{lean(true, 3), lean(false, 3, at81)}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newLBRig(t, hits{}, c.one...)
			r.knowFarm(t, 12)
			var packets []either
			for i := range c.one {
				packets = append(packets, r.eithers(t, 32, c.one[i], c.two[i])...)
			}
			states := []state{c.two, c.one}
			ones, twos := r.whole(t, packets, 40, func(i int) error { return r.Apply(lbConfig(states[i%2]...)) })
			if ones == 0 || twos == 0 {
				t.Errorf("%d packets by one, %d by the other", ones, twos)
			}
		})
	}
}

// knowFarm tells the next hops of n servers, be they there or not.
func (r *lbRig) knowFarm(t testing.TB, n int) {
	t.Helper()
	hops := topo.NextHops{netip.PrefixFrom(clientAddr, 128): routerMAC}
	for i := range n {
		hops[serverLocator(i)] = hopMAC(i)
	}
	if err := r.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
}

// TestRecordsApart: a record that was replaced serves for the next one; a packet that
// reads it meets its own service all the same. One service has
// no way to its transit SID, the other one no server, so every packet stays as it
// is, and a run is many packets.
func TestRecordsApart(t *testing.T) {
	services := []topo.Service{hunting(2, 4, viaTransit(1)), hunting(2, 0, at81)}
	r := newLBRig(t, hits{}, services...)
	r.knowFarm(t, 0)
	r.records.free = r.records.free[:1] // so that it serves again at once
	stop, ended := make(chan bool), make(chan error)
	changes := 0
	go func() {
		for ; ; changes++ {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			key := serviceKey(services[changes%2].VIP)
			record := r.records.have[key]
			record.Zero++ // which nobody reads
			if err := r.records.put(record); err != nil {
				ended <- err
				return
			}
		}
	}()
	before, packets := r.counts(t), uint64(0)
	for end := time.Now().Add(time.Second); time.Now().Before(end); packets += 10_000 {
		o := ebpf.RunOptions{Data: inward(huntPort, ack).frame(), Repeat: 10_000}
		if _, err := r.prog.Run(&o); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-ended; err != nil || changes < 10 {
		t.Errorf("%d changes, %v", changes, err)
	}
	for i, n := range r.counts(t) {
		switch n -= before[i]; {
		case r.names[i] == "drop_no_next_hop" && n < packets: // a run that a signal interrupts runs again
			t.Errorf("%d packets of %d", n, packets)
		case r.names[i] != "drop_no_next_hop" && n > 0:
			t.Errorf("%s: %d packets of %d; %d changes", r.names[i], n, packets, changes)
		}
	}
}

// TestReleaseWaits: when Apply waits for packets, all that one may still read is
// there: the tables of records that were replaced or deleted, and the servers.
// It waits once, however many such records there are, and where there is none not
// at all.
func TestReleaseWaits(t *testing.T) {
	r := newLBRig(t, hits{}, hunting(2, 4), lean(false, 2, at81))
	wait := r.records.wait
	for _, c := range []struct {
		next   []topo.Service
		waits  int
		leaves int // server
	}{
		{[]topo.Service{hunting(2, 4), lean(true, 2, at81)}, 0, -1},
		{[]topo.Service{hunting(2, 4), lean(true, 2, at81)}, 0, -1},
		{[]topo.Service{hunting(2, 4), lean(true, 3, at81)}, 1, -1},
		{[]topo.Service{hunting(3, 4), lean(true, 2, at81)}, 1, -1},
		{[]topo.Service{hunting(2, 5), service(82, topo.Single, 1, 3)}, 1, 11},
		{[]topo.Service{hunting(2, 3)}, 1, 4},
	} {
		before := map[uint32]uint32{} // slot → table
		for _, p := range r.services {
			before[p.record.Table] = r.tableIn(t, p.record.Table)
		}
		known, waits := len(r.numbers.known), 0
		r.records.wait = func() error {
			waits++
			now := map[uint32]bool{}
			for _, p := range r.services {
				now[p.record.Table] = true
			}
			for slot, id := range before {
				if got := r.tableIn(t, slot); !now[slot] && got != id {
					t.Errorf("slot %d holds table %d, held %d", slot, got, id)
				}
			}
			if n := len(r.numbers.known); n < known {
				t.Errorf("%d servers of %d", n, known)
			}
			return wait()
		}
		if err := r.Apply(lbConfig(c.next...)); err != nil {
			t.Fatal(err)
		}
		if waits != c.waits {
			t.Errorf("waited %d times, want %d", waits, c.waits)
		}
		r.wantTables(t, len(c.next))
		if number, known := r.numberOf(c.leaves); c.leaves >= 0 && known {
			t.Errorf("server %d, which is gone, has number %d", c.leaves, number)
		}
	}
}

// TestApplyFails: one service that cannot be leaves the others as they were, and
// nothing behind; the next configuration is taken.
func TestApplyFails(t *testing.T) {
	before := hunting(2, 4)
	r := newLBRig(t, hits{}, before, service(82, topo.Single, 1, 3))
	p := inward(huntPort, ack)
	old := recovered(p, candidates(t, &before, before.Servers, p.flow()))
	next := hunting(3, 4)
	heavy := service(82, topo.Single, 1, 3)
	heavy.Servers[0].Weight = 1 << 16
	if err := r.Apply(lbConfig(next, heavy)); err == nil {
		t.Error("took a weight of 65536")
	}
	r.wantTables(t, 2)
	r.send(t, p.frame()).is(t, "as before", xdpTX, old, "recover")
	r.apply(t, next, service(82, topo.Single, 1, 3))
	r.wantTables(t, 2)
	r.send(t, p.frame()).is(t, "the next", xdpTX, recovered(p, candidates(t, &next, next.Servers, p.flow())), "recover")
}

// tableIn names the table in a slot.
func (r *lbRig) tableIn(t testing.TB, slot uint32) (id uint32) {
	t.Helper()
	if err := r.objs.Tables.Lookup(slot, &id); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestMostServices: as many services as there may be, all replaced twice: by
// other tables in the same slots, and by others at other VIPs.
func TestMostServices(t *testing.T) {
	all := func(port, upper int) (services []topo.Service) {
		for i := range config.MaxServices {
			services = append(services, hunting(2, 12, func(s *topo.Service) {
				s.Name, s.VIP.Port, s.Buckets = fmt.Sprint(i), uint16(port+i), 7
				s.VIP.Addr = netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: byte(port >> 12), 14: byte(i >> 8), 15: byte(i)})
				s.Servers[upper].Weight = 0
			}))
		}
		return services
	}
	r := newLBRig(t, hits{}, all(10_000, 0)...)
	for i, services := range [][]topo.Service{all(10_000, 1), all(20_000, 2), all(20_000, 3)} {
		r.cfg.Services = services
		if err := r.Apply(r.cfg); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
		r.wantTables(t, config.MaxServices)
		r.knowFarm(t, 12)
		for _, at := range []int{0, 500, config.MaxServices - 1} {
			svc := services[at]
			p := inward(svc.VIP.Port, ack)
			p.dst = netip.AddrPortFrom(svc.VIP.Addr, svc.VIP.Port)
			r.send(t, p.frame()).is(t, svc.Name, xdpTX, recovered(p, candidates(t, &svc, svc.Servers, p.flow())), "recover")
		}
	}
	r.cfg.Services = append(all(20_000, 3), hunting(2, 4))
	if err := r.Apply(r.cfg); err == nil {
		t.Error("took one service more than there is room for")
	}
	r.apply(t, all(20_000, 4)...)
	r.wantTables(t, config.MaxServices)
}
