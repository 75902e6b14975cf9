package lb_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/dataplane/lb"
	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
)

// learned is a service that learns, of so many servers.
func learned(servers int, change ...func(*topo.Service)) topo.Service {
	svc := rig.Service(81, topo.Learned, 1, 0)
	svc.LearnEvery = time.Second / 2
	for i := range servers {
		svc.Servers = append(svc.Servers, topo.Server{Name: fmt.Sprint("s", i), Locator: locatorOf(i), Weight: 1})
	}
	for _, c := range change {
		c(&svc)
	}
	return svc
}

// locatorOf is the locator of one of up to 65,536 servers.
func locatorOf(i int) netip.Prefix {
	a := rig.ServerLocator(0).Addr().As16()
	binary.BigEndian.PutUint16(a[6:], uint16(0x1000+i))
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// serverIn is the server that a frame goes to.
func serverIn(frame []byte) int { return int(binary.BigEndian.Uint16(frame[14+24+6:])) - 0x1000 }

// learner is an LB of services that learn, with all next hops.
func learner(t *testing.T, seen rig.Hits, services ...topo.Service) *rig.LB {
	t.Helper()
	rig.Enter(t)
	cfg := rig.LBConfig(services...)
	cfg.Flows.Entries = 8192
	r := rig.LoadLB(t, seen, cfg)
	hopsOf(t, r)
	return r
}

// successor is an LB with all next hops that takes over from that before it, by its pins.
func successor(t *testing.T, cfg *topo.LB) *rig.LB {
	t.Helper()
	l, err := lb.NewWith(cfg, rig.InVirtualTime)
	if err == nil {
		err = l.Attach()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := rig.LBAround(t, rig.Hits{}, l, cfg)
	hopsOf(t, r)
	return r
}

func hopsOf(t *testing.T, r *rig.LB) {
	t.Helper()
	hops := topo.NextHops{netip.PrefixFrom(rig.ClientAddr, 128): rig.RouterMAC}
	for _, svc := range r.Cfg.Services {
		for _, s := range svc.Servers {
			hops[s.Locator] = rig.HopMAC(1)
		}
	}
	if err := r.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
}

// seats reads the seats of a service.
func seats(t testing.TB, r *rig.LB, svc int) []dataplane.Seat {
	t.Helper()
	all, err := r.Seats(&r.Cfg.Services[svc])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// wantSeat checks the flows that count at a server, and returns the durations that were sampled.
func wantSeat(t *testing.T, r *rig.LB, label string, server int, established, embryonic uint32) (took []time.Duration) {
	t.Helper()
	for i, s := range seats(t, r, 0) {
		took = append(took, s.Durations...)
		e, o := established, embryonic
		if i != server {
			e, o = 0, 0
		}
		if s.Established != e || s.Embryonic != o {
			t.Errorf("%s: server %d has %d established flows and %d embryonic; want %d, %d", label, i, s.Established, s.Embryonic, e, o)
		}
	}
	return took
}

// sendTo sends a packet, which must reach that server, or any if it is -1; returns it.
func sendTo(t *testing.T, r *rig.LB, label string, p rig.Packet, server int, reasons ...string) int {
	t.Helper()
	out := r.Send(t, p.Frame())
	out.Is(t, label, rig.XDPTX, nil, reasons...)
	got := serverIn(out.Frame)
	if server >= 0 && got != server {
		t.Errorf("%s: at server %d, want %d", label, got, server)
	}
	return got
}

// payload gives a packet data.
func payload(p rig.Packet) rig.Packet {
	p.Payload = []byte("data")
	return p
}

// tallyOf reads the tally of a service.
func tallyOf(t *testing.T, r *rig.LB, svc int) *objects.LBTally {
	t.Helper()
	tally := new(objects.LBTally)
	if err := r.Objects().Tallies.Lookup(uint32(1+svc), tally); err != nil {
		t.Fatal(err)
	}
	return tally
}

// wantRecount: the counts of a tally are those of the table's words.
func wantRecount(t *testing.T, r *rig.LB, svc int) {
	t.Helper()
	tally := tallyOf(t, r, svc)
	want := [topo.MaxSeats][2]uint64{}
	for _, word := range r.Table.Words(t) {
		if share := shareOf(word); share != 0 && word>>53&topo.MaxLearned == uint64(1+svc) {
			want[word>>32&(topo.MaxSeats-1)][word>>43&1] += share
		}
	}
	for i := range tally.Seat {
		if got := tally.Seat[i].Count; got != want[i] {
			t.Errorf("seat %d counts %x, and the table has %x", i, got, want[i])
		}
	}
}

// shareOf is share_of of bpf/lb/learned_word.h.
func shareOf(word uint64) uint64 {
	if word>>63&(word>>47)&(word>>14)&1 == 0 {
		return 0
	}
	return word>>42&1<<32 | word>>46&1
}
