package lb_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestLearnedTakeover: the next daemon has the flows, their counts, the weights and the durations,
// although its configuration is another; a recount finds none wrong.
func TestLearnedTakeover(t *testing.T) {
	rig.Enter(t)
	cfg := rig.LBConfig(learned(6))
	cfg.Pin = filepath.Join(rig.BPFFS(t), "lb")
	first := successor(t, cfg)
	spread := dataplane.Spread{Inverses: []uint32{1 << 16, 1 << 16, 1 << 18, 1 << 16, 1 << 16, 1 << 16}}
	if err := first.Spread(&cfg.Services[0], spread); err != nil {
		t.Fatal(err)
	}
	at := map[int]int{}
	for i := range 42 {
		at[i] = serverIn(first.Run(t, client(i, wire.SYN).Frame()).Frame)
		first.Run(t, client(i, wire.ACK).Frame())
	}
	first.At(t, rig.Start+time.Second)
	first.Run(t, client(0, wire.FIN|wire.ACK).Frame())
	before := seats(t, first, 0)
	first.Die(t)

	svc := learned(7)
	svc.Servers = slices.Concat(svc.Servers[6:], svc.Servers[1:6]) // one came, and one left
	other := learned(3, func(s *topo.Service) { s.VIP.Port = 82 })
	next := rig.LBConfig(other, svc)
	next.Pin = cfg.Pin
	second := successor(t, next)
	second.At(t, rig.Start+time.Second)
	for i := range 42 {
		if i != 0 && at[i] != 0 {
			wantServer(t, second, client(i, wire.ACK), at[i])
		}
	}
	after := seats(t, second, 1)
	for i := 1; i < 6; i++ {
		if after[i].Established != before[i].Established || after[i].Established == 0 {
			t.Errorf("server %d has %d flows, and had %d", i, after[i].Established, before[i].Established)
		}
	}
	if after[2].Inverse != 1<<18 || after[3].Inverse != 1<<16 {
		t.Errorf("inverses %d and %d are left, want those of before", after[2].Inverse, after[3].Inverse)
	}
	if after[2].Established*3 > after[1].Established {
		t.Errorf("the slow server has %d flows, another one %d", after[2].Established, after[1].Established)
	}
	if wrong, err := second.Recount(); err != nil || wrong != 0 {
		t.Errorf("%d counts were wrong, %v", wrong, err)
	}
	second.Run(t, client(100, wire.SYN).Frame())
	if s := seats(t, second, 1)[0]; s.Embryonic != 1 {
		t.Errorf("the server that came has %+v, want the next flow", s)
	}
	if err := errors.Join(second.Detach(), second.Close()); err != nil {
		t.Fatal(err)
	}
}

// wantServer sends a packet, which must reach a server.
func wantServer(t *testing.T, r *rig.LB, p rig.Packet, server int) {
	t.Helper()
	if got := serverIn(r.Run(t, p.Frame()).Frame); got != server {
		t.Errorf("%v is at server %d, want %d", p.Src, got, server)
	}
}

// TestLearnedBecomes: a service that learns may hunt, or keep flows by hash, from the next reload on,
// and the other way round: no count goes wrong, and no flow moves.
func TestLearnedBecomes(t *testing.T) {
	r := learner(t, rig.Hits{}, learned(5))
	at := map[int]int{}
	for i := range 100 {
		at[i] = serverIn(r.Run(t, client(i, wire.SYN).Frame()).Frame)
		r.Run(t, client(i, wire.ACK).Frame())
	}
	for _, d := range []topo.Dispatch{topo.Single, topo.Learned, topo.Hunt, topo.LearnedLiteral} {
		r.Cfg.Services = []topo.Service{learned(5, func(s *topo.Service) {
			s.Dispatch = d
			if d.Offers() {
				s.Choices = 2
			}
		})}
		if err := r.Configure(r.Cfg); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			wantServer(t, r, client(i, wire.ACK), at[i])
		}
		for i := range 30 { // of other connections on the same ports, which are announced
			p := client(i, wire.SYN)
			p.Seq += 1000
			r.Run(t, p.Frame())
		}
		wantRecount(t, r, 0)
		if wrong, err := r.Recount(); err != nil || wrong != 0 {
			t.Errorf("as %v: %d counts were wrong, %v", d, wrong, err)
		}
	}
}
