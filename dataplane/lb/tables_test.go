package lb_test

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"proffer/dataplane/lb"
	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/proof/rig"
	"proffer/table"
	"proffer/topo"
	"proffer/wire"
)

// numberOf is the number of server i in the maps.
func numberOf(r *rig.LB, i int) (uint32, bool) {
	return r.NumberOf(rig.ServerLocator(i))
}

// TestNumbersStay: a server keeps its number while it is in a pool, wherever it
// stands there; a server that is gone gives its own back.
func TestNumbersStay(t *testing.T) {
	pool := func(ids ...int) topo.Service {
		return rig.Hunting(2, 0, func(s *topo.Service) {
			for _, i := range ids {
				s.Servers = append(s.Servers, rig.Farm(i + 1)[i])
			}
		})
	}
	r := rig.NewLB(t, rig.Hits{}, pool(1, 2, 3))
	known := map[int]uint32{}
	for _, ids := range [][]int{{1, 2, 3}, {3, 2, 1}, {9, 3, 1}, {9, 8, 7, 1}, {1}, {4, 5, 6, 7, 8, 9, 1}} {
		r.Reconfigure(t, pool(ids...))
		taken := map[uint32]int{}
		for _, i := range ids {
			number, ok := numberOf(r, i)
			if was, before := known[i]; !ok || before && was != number {
				t.Errorf("%v: server %d has number %d, had %d", ids, i, number, was)
			}
			known[i] = number
			taken[number]++
			var record objects.LBServer
			if err := r.Objects().Servers.Lookup(number, &record); err != nil || record.LocatorBe != objects.LocatorBits(rig.ServerLocator(i)) || record.Ready != 1 {
				t.Errorf("%v: record of server %d: %+v, %v", ids, i, record, err)
			}
		}
		if len(taken) != len(ids) {
			t.Errorf("%v: numbers %v", ids, taken)
		}
		maps.DeleteFunc(known, func(i int, _ uint32) bool { return !slices.Contains(ids, i) })
		for i := range 10 {
			if _, ok := numberOf(r, i); ok != slices.Contains(ids, i) {
				t.Errorf("%v: server %d numbered: %v", ids, i, ok)
			}
		}
	}
	if n := max(slices.Max(slices.Collect(maps.Values(known)))); n > 9 {
		t.Errorf("numbers up to %d for seven servers", n)
	}
}

// TestUnion: today's candidates, then those of the history, the latest first,
// each once; no server that left.
func TestUnion(t *testing.T) {
	all := rig.Farm(40)
	svc := rig.Hunting(2, 0)
	svc.Servers = all[:30]
	for v := range 12 {
		svc.History = append(svc.History, topo.Version{Version: 12 - v, Servers: all[3*v : 3*v+4]})
	}
	others := rig.Service(81, topo.Stateless, 1, 40) // where the others still are
	r := rig.NewLB(t, rig.Hits{}, svc, others)
	if long := wantUnion(r, t); long == 0 {
		t.Error("no bucket had more members than it has room for")
	}
	svc.History = slices.Clone(svc.History[1:3])
	r.Reconfigure(t, svc, others)
	wantUnion(r, t)
	svc.History = nil
	r.Reconfigure(t, svc, others)
	if long := wantUnion(r, t); long != 0 {
		t.Errorf("%d buckets had more members than they have room for", long)
	}
}

// TestNoMemberUnasked: after ten changes of a pool of 48 servers with lists drawn at random,
// each bucket names each server that it ever had a flow for. (With fifteen members a bucket,
// 12 % of the oldest flows were not asked for.)
func TestNoMemberUnasked(t *testing.T) {
	all := rig.Farm(58)
	svc := rig.Hunting(2, 0, func(s *topo.Service) { s.Select, s.Buckets = topo.Random, 4099 })
	svc.Servers = all
	for change := range 10 { // one server comes, another drains
		pool := slices.Clone(all[:57-change])
		for i := range 9 - change {
			pool[i].Weight = 0
		}
		svc.History = append(svc.History, topo.Version{Version: 10 - change, Servers: pool})
	}
	r := rig.NewLB(t, rig.Hits{}, svc)
	was := svc.History[9]
	oldest, err := table.Of(&svc, was.Servers)
	if err != nil {
		t.Fatal(err)
	}
	unasked, long := 0, 0
	for bucket := range svc.Buckets {
		members, _ := membersOf(r, t, bucket)
		if len(members) > objects.NamedMembers {
			long++
		}
		for _, at := range oldest.Bucket(bucket) {
			if number, _ := numberOf(r, int(was.Servers[at].Locator.Addr().As16()[7])); !slices.Contains(members, uint16(number)) {
				unasked++
			}
		}
	}
	if unasked > 0 || long == 0 {
		t.Errorf("%d of %d candidates of the oldest pool unasked; %d buckets long", unasked, 2*svc.Buckets, long)
	}
}

// membersOf reads a bucket of the first service's table in the kernel, and the elements
// behind the buckets that it goes on in.
func membersOf(r *rig.LB, t *testing.T, bucket int) (members []uint16, choices uint8) {
	t.Helper()
	m := r.TableOf(r.Cfg.Services[0].VIP)
	element := func(at int) (word uint64) {
		if err := m.Lookup(uint32(at), &word); err != nil {
			t.Fatal(err)
		}
		return word
	}
	word := element(bucket)
	all, named := int(word>>objects.MembersShift), int(word>>objects.MembersShift)
	if all > objects.NamedMembers {
		named = objects.FirstMembers
	}
	for i := range named {
		members = append(members, uint16(word>>(i*objects.NumberBits)%(1<<objects.NumberBits)))
	}
	next := 2 * int(word>>objects.RestShift%(1<<(objects.ChoicesShift-objects.RestShift)))
	for i := range all - named {
		members = append(members, uint16(element(next+i/objects.ElementMembers)>>(i%objects.ElementMembers*16)))
	}
	return members, uint8(word >> objects.ChoicesShift % 8)
}

// wantUnion compares the first service's table in the kernel with the union, and
// returns how many flows had more members than a bucket has room for.
func wantUnion(r *rig.LB, t *testing.T) (long int) {
	t.Helper()
	for i := range 200 {
		p := rig.Inward(rig.HuntPort, wire.ACK)
		p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(i+1))
		want := r.Union(t, 0, p.Flow())
		bucket := policy.NewDigestKey(rig.CandidateKeyOfTests).Digest(p.Flow()) >> 32 * rig.BucketsOfTests >> 32
		members, choices := membersOf(r, t, int(bucket))
		var got []int
		for _, number := range members {
			for s := range 40 {
				if n, ok := numberOf(r, s); ok && n == uint32(number) {
					got = append(got, s)
				}
			}
		}
		if !slices.Equal(got, want) || choices != 2 {
			t.Fatalf("flow %d: %v (%d choices), want %v", i, got, choices, want)
		}
		if len(got) > objects.NamedMembers {
			long++
		}
	}
	return long
}

// wantTables checks that the kernel holds one table a service and that the other
// slots are free, each once.
func wantTables(r *rig.LB, t testing.TB, services int) {
	t.Helper()
	slots, spare, empty := r.Slots()
	info, err := empty.Info()
	if err != nil {
		t.Fatal(err)
	}
	none, _ := info.ID()
	free := map[uint32]bool{}
	for _, slot := range spare {
		free[slot] = true
	}
	tables := 0
	for slot := range slots {
		var id uint32
		err := r.Objects().Tables.Lookup(slot, &id)
		if err != nil && !rig.IsMissing(err) {
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
	if tables != services || len(free) != len(spare) || r.Retired() != 0 {
		t.Fatalf("%d tables for %d services, %d (%d) slots free, %d retired", tables, services, len(free), len(spare), r.Retired())
	}
}

// TestServicesComeAndGo: a service that is gone is the kernel's again; its table
// makes room, so that configurations may change for ever.
func TestServicesComeAndGo(t *testing.T) {
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 4))
	for i := range 40 { // more tables than there is room for at a time
		services := []topo.Service{rig.Hunting(2, 4+i%2)}
		for port := range i % 6 {
			services = append(services, rig.Service(uint16(1000+port), topo.Stateless, 1, 3))
		}
		r.Cfg.Services = services
		if err := r.Configure(r.Cfg); err != nil {
			t.Fatalf("configuration %d: %v", i, err)
		}
		wantTables(r, t, len(services))
	}
	r.Reconfigure(t, rig.Hunting(2, 4), rig.Service(81, topo.Stateless, 1, 3))
	r.Reconfigure(t, rig.Service(81, topo.Stateless, 1, 3))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	r.Send(t, p.Frame()).Is(t, "a service that is gone", rig.XDPTX, nil, "refuse_port")
	p = rig.Inward(81, wire.SYN)
	r.Send(t, p.Frame()).Is(t, "one that stays", rig.XDPTX, nil, "deliver")
	r.Reconfigure(t)
	r.Send(t, rig.Altered(p.Frame(), rig.AtNext, 44)).Is(t, "no VIP any more", rig.XDPPass, nil, "pass_not_service")
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
			got, ok := lb.LookupByLength(hops, a)
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
	r := rig.NewLB(t, rig.Hits{}, rig.Hunting(2, 4))
	for range 3 {
		r.Run(t, rig.Inward(8080, wire.RST).Frame())
	}
	all, err := r.Counters()
	if err != nil {
		t.Fatal(err)
	}
	var perCPU [][]byte
	if err := r.Objects().Counters.Lookup(uint32(0), &perCPU); err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		want, oneByOne := uint64(0), uint64(0)
		if c.Name == "drop_unserved" {
			want = 3
		}
		for _, counts := range perCPU {
			oneByOne += binary.NativeEndian.Uint64(counts[8*i:])
		}
		if c.Name != r.Names[i] || c.Value != want || oneByOne != want {
			t.Errorf("%s: %d, one by one %d, want %d", c.Name, c.Value, oneByOne, want)
		}
	}
	if len(all) != len(r.Names) {
		t.Errorf("%d counters of %d", len(all), len(r.Names))
	}
}
