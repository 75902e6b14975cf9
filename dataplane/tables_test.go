package dataplane

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"

	"proffer/policy"
	"proffer/topo"
)

// TestBucketBytes: Go's copy of a number of C's.
func TestBucketBytes(t *testing.T) {
	if n := unsafe.Sizeof(lbBucket{}); n != bucketBytes {
		t.Errorf("a bucket has %d bytes, the tables %d", n, bucketBytes)
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
	others := service(81, topo.Single, 1, 40) // where the others still are
	r := newLBRig(t, hits{}, svc, others)
	if full := r.wantUnion(t); full == 0 {
		t.Error("no bucket was full")
	}
	svc.History = slices.Clone(svc.History[1:3])
	r.apply(t, svc, others)
	if full := r.wantUnion(t); full != 0 {
		t.Errorf("%d buckets were full", full)
	}
}

// wantUnion compares the first service's table in the kernel with the union, and
// returns for how many flows there was no room for more.
func (r *lbRig) wantUnion(t *testing.T) (full int) {
	t.Helper()
	table := r.services[r.cfg.Services[0].VIP].table
	for i := range 200 {
		p := inward(huntPort, ack)
		p.src = netip.AddrPortFrom(clientAddr, uint16(i+1))
		want := r.union(t, 0, p.flow())
		want = want[:min(len(want), 15)]
		var b lbBucket
		if err := table.Lookup(uint32(policy.NewDigestKey(candidateKeyOfTests).Digest(p.flow())>>32*bucketsOfTests>>32), &b); err != nil {
			t.Fatal(err)
		}
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
	return full
}

// wantTables checks that the kernel holds one table a service and that the other
// slots are free, each once.
func (r *lbRig) wantTables(t testing.TB, services int) {
	t.Helper()
	info, err := r.slots.none.Info()
	if err != nil {
		t.Fatal(err)
	}
	none, _ := info.ID()
	free := map[uint32]bool{}
	for _, slot := range r.slots.free {
		free[slot] = true
	}
	tables := 0
	for slot := range r.slots.spare() {
		var id uint32
		err := r.objs.Tables.Lookup(slot, &id)
		if err != nil && !isMissing(err) {
			t.Fatal(err)
		}
		there := err == nil && ebpf.MapID(id) != none
		if there {
			tables++
		}
		if there == free[slot] {
			t.Errorf("slot %d: has a table %v, is free %v", slot, there, free[slot])
		}
	}
	if tables != services || len(free) != len(r.slots.free) || len(r.retired) != 0 {
		t.Fatalf("%d tables for %d services, %d (%d) slots free, %d retired", tables, services, len(free), len(r.slots.free), len(r.retired))
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
		r.wantTables(t, len(services))
	}
	r.apply(t, hunting(2, 4), service(81, topo.Single, 1, 3))
	r.apply(t, service(81, topo.Single, 1, 3))
	p := inward(huntPort, syn)
	r.send(t, p.frame()).is(t, "a service that is gone", xdpPass, p.frame(), "pass_not_service")
	p = inward(81, syn)
	r.send(t, p.frame()).is(t, "one that stays", xdpTX, nil, "deliver")
	r.apply(t)
	r.send(t, altered(p.frame(), atNext, 44)).is(t, "no VIP any more", xdpPass, nil, "pass_not_service")
}

// TestHopsByLength: fast against slow.
func TestHopsByLength(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	address := func() netip.Addr { // few enough to meet again
		if rng.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{10, byte(rng.IntN(4)), 0, byte(rng.IntN(4))})
		}
		return netip.AddrFrom16([16]byte{0: 0xfd, 7: byte(rng.IntN(4)), 15: byte(rng.IntN(4))})
	}
	known, unknown := 0, 0
	for range 200 {
		hops := topo.NextHops{}
		for range rng.IntN(12) {
			a := address()
			p, _ := a.Prefix(rng.IntN(a.BitLen() + 1))
			hops[p] = topo.MAC{5: byte(rng.IntN(3))}
		}
		for h := range 50 {
			a := address()
			got, ok := byLength(hops).lookup(a)
			want, wanted := hops.Lookup(a)
			if got != want || ok != wanted {
				t.Fatalf("%d: %s among %v: %v %v, want %v %v", h, a, hops, got, ok, want, wanted)
			}
			if ok {
				known++
			} else {
				unknown++
			}
		}
	}
	if known == 0 || unknown == 0 {
		t.Errorf("%d known, %d unknown", known, unknown)
	}
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
	var perCPU [][]byte
	if err := r.counters.Lookup(uint32(0), &perCPU); err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		want, oneByOne := uint64(0), uint64(0)
		if c.Name == "pass_not_service" {
			want = 3
		}
		for _, counts := range perCPU {
			oneByOne += binary.NativeEndian.Uint64(counts[8*i:])
		}
		if c.Name != r.names[i] || c.Value != want || oneByOne != want {
			t.Errorf("%s: %d, one by one %d, want %d", c.Name, c.Value, oneByOne, want)
		}
	}
	if len(all) != len(r.names) {
		t.Errorf("%d counters of %d", len(all), len(r.names))
	}
}
