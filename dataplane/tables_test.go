package dataplane

import (
	"bytes"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"proffer/policy"
	"proffer/topo"
)

// TestBucketBytes: Go's copy of a number of C's.
func TestBucketBytes(t *testing.T) {
	if n := unsafe.Sizeof(lbBucket{}); n != bucketBytes {
		t.Errorf("a bucket has %d bytes, the tables %d", n, bucketBytes)
	}
}

// lean is a service over a farm that stands still, in which half of the servers
// drain: who takes flows differs, who is known does not.
func lean(upper bool, choices int) topo.Service {
	return hunting(choices, 12, func(s *topo.Service) {
		for i := range s.Servers {
			if (i < 6) == upper {
				s.Servers[i].Weight = 0
			}
		}
	})
}

// TestApplyAtomic: FAILURES.md, reload under traffic: whatever leaves belongs
// wholly to one of the two tables.
func TestApplyAtomic(t *testing.T) {
	r := newLBRig(t, hits{}, lean(false, 2))
	type both struct{ frame, one, two []byte }
	var flows []both
	for i := range 64 {
		p := inward(huntPort, ack)
		p.src = netip.AddrPortFrom(clientAddr, uint16(clientPort+i))
		b := both{frame: p.frame(), one: recovered(p, r.list(t, 0, p.flow()))}
		r.cfg.Services[0] = lean(true, 3)
		b.two = recovered(p, r.list(t, 0, p.flow()))
		r.cfg.Services[0] = lean(false, 2)
		flows = append(flows, b)
	}
	stop, applied := make(chan bool), make(chan int)
	go func() {
		n := 0
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				applied <- n
				return
			case <-tick.C:
				n++
				cfg := lbConfig(lean(n%2 == 1, 2+n%2))
				if err := r.Apply(cfg); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	ones, twos := 0, 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		for _, f := range flows {
			r.forgetRetries(t)
			switch out := r.run(t, f.frame); {
			case bytes.Equal(out.frame, f.one):
				ones++
			case bytes.Equal(out.frame, f.two):
				twos++
			default:
				t.Errorf("neither table's:\n got %x\n one %x\n two %x", out.frame, f.one, f.two)
			}
		}
	}
	close(stop)
	if n := <-applied; n < 10 || ones == 0 || twos == 0 {
		t.Errorf("%d configurations: %d outputs of one, %d of the other", n, ones, twos)
	}
}

// numberOf is what the maps call server i.
func (r *lbRig) numberOf(i int) (uint32, bool) {
	number, ok := r.numbers.known[locatorBits(serverLocator(i))]
	return number, ok
}

// TestNumbersStay: a server keeps its number while it is in a pool, wherever it
// stands there; who is gone gives its own back.
func TestNumbersStay(t *testing.T) {
	pool := func(ids ...int) topo.Service {
		return hunting(2, 0, func(s *topo.Service) {
			for _, i := range ids {
				s.Servers = append(s.Servers, farm(i + 1)[i])
			}
		})
	}
	r := newLBRig(t, hits{}, pool(1, 2, 3))
	known := map[int]uint32{}
	for _, ids := range [][]int{{1, 2, 3}, {3, 2, 1}, {9, 3, 1}, {9, 8, 7, 1}, {1}, {4, 5, 6, 7, 8, 9, 1}} {
		r.apply(t, pool(ids...))
		taken := map[uint32]int{}
		for _, i := range ids {
			number, ok := r.numberOf(i)
			if was, before := known[i]; !ok || before && was != number {
				t.Errorf("%v: server %d has number %d, had %d", ids, i, number, was)
			}
			known[i] = number
			taken[number]++
			var record lbServer
			if err := r.objs.Servers.Lookup(number, &record); err != nil || record.LocatorBe != locatorBits(serverLocator(i)) || record.Ready != 1 {
				t.Errorf("%v: record of server %d: %+v, %v", ids, i, record, err)
			}
		}
		if len(taken) != len(ids) {
			t.Errorf("%v: numbers %v", ids, taken)
		}
		maps.DeleteFunc(known, func(i int, _ uint32) bool { return !slices.Contains(ids, i) })
		for i := range 10 {
			if _, ok := r.numberOf(i); ok != slices.Contains(ids, i) {
				t.Errorf("%v: server %d numbered: %v", ids, i, ok)
			}
		}
	}
	if n := max(slices.Max(slices.Collect(maps.Values(known)))); n > 9 {
		t.Errorf("numbers up to %d for seven servers", n)
	}
}

// TestUnion: today's candidates, then those of the history, the latest first,
// each once; nobody who left, and no more than there is room for.
func TestUnion(t *testing.T) {
	all := farm(40)
	svc := hunting(2, 0)
	svc.Servers = all[:30]
	for v := range 12 {
		svc.History = append(svc.History, topo.Version{Version: 12 - v, Servers: all[3*v : 3*v+4]})
	}
	r := newLBRig(t, hits{}, svc, service(81, topo.Single, 1, 40)) // where the others still are
	buckets, err := r.tables.buckets(&r.cfg.Services[0], r.numbers)
	if err != nil {
		t.Fatal(err)
	}
	full := 0
	for i := range 200 {
		p := inward(huntPort, ack)
		p.src = netip.AddrPortFrom(clientAddr, uint16(i+1))
		want := r.union(t, 0, p.flow())
		want = want[:min(len(want), 15)]
		b := buckets[int(policy.Hash(candidateKeyOfTests, p.flow())>>32*bucketsOfTests>>32)]
		var got []int
		for _, number := range b.Server[:b.Members] {
			for s := range 40 {
				if n, ok := r.numberOf(s); ok && n == uint32(number) {
					got = append(got, s)
				}
			}
		}
		if !slices.Equal(got, want) || b.Choices != 2 {
			t.Fatalf("flow %d: %v (%d choices), want %v", i, got, b.Choices, want)
		}
		if len(got) == 15 {
			full++
		}
	}
	if full == 0 {
		t.Error("no bucket was full")
	}
}

// TestServicesComeAndGo: a service that is gone is the kernel's again; its table
// makes room, so that configurations may change for ever.
func TestServicesComeAndGo(t *testing.T) {
	r := newLBRig(t, hits{}, hunting(2, 4))
	for i := range 40 { // more tables than there is room for at a time
		services := []topo.Service{hunting(2, 4+i%2)}
		for port := range i % 6 {
			services = append(services, service(uint16(1000+port), topo.Single, 1, 3))
		}
		r.cfg.Services = services
		if err := r.Apply(r.cfg); err != nil {
			t.Fatalf("configuration %d: %v", i, err)
		}
		slots := map[uint32]bool{}
		for slot := range r.objs.Tables.MaxEntries() {
			var id uint32
			if r.objs.Tables.Lookup(slot, &id) == nil {
				slots[slot] = true
			}
		}
		if n := len(slots); n < len(services) || n > 2*len(services) {
			t.Fatalf("configuration %d: %d tables for %d services", i, n, len(services))
		}
	}
	r.apply(t, hunting(2, 4), service(81, topo.Single, 1, 3), service(81, topo.Single, 1, 3))
	r.apply(t, service(81, topo.Single, 1, 3))
	p := inward(huntPort, syn)
	r.send(t, p.frame()).is(t, "a service that is gone", xdpPass, p.frame(), "pass_not_service")
	p = inward(81, syn)
	r.send(t, p.frame()).is(t, "one that stays", xdpTX, nil, "deliver")
	r.apply(t)
	r.send(t, altered(p.frame(), atNext, 44)).is(t, "no VIP any more", xdpPass, nil, "pass_not_service")
}

// TestCounters: the names in the program's own order, summed over CPUs.
func TestCounters(t *testing.T) {
	r := newLBRig(t, hits{}, hunting(2, 4))
	for range 3 {
		r.run(t, inward(8080, syn).frame())
	}
	all, err := r.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range r.counts(t) {
		want := uint64(0)
		if all[i].Name == "pass_not_service" {
			want = 3
		}
		if all[i].Value != n || n != want {
			t.Errorf("%s: %d, one by one %d, want %d", all[i].Name, n, all[i].Value, want)
		}
	}
}
