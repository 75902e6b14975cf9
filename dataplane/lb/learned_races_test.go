package lb_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"proffer/dataplane"
	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// stalling is an LB of a service that learns. Its programs stop between two steps.
func stalling(t *testing.T, entries int, svc topo.Service) *rig.LB {
	t.Helper()
	rig.Enter(t)
	cfg := rig.LBConfig(svc)
	cfg.Flows.Entries = entries
	r := rig.LoadLBWith(t, rig.Hits{}, cfg, func(spec *ebpf.CollectionSpec) error {
		return errors.Join(rig.InVirtualTime(spec), spec.Variables["stalls"].Set(true))
	})
	hopsOf(t, r)
	return r
}

// both runs f on two threads at once, with a number each.
func both(f func(i int)) {
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// wantTree: every value of a tally's tree is the least below it, and a leaf is its seat's score.
func wantTree(t *testing.T, r *rig.LB) {
	t.Helper()
	var tally objects.LBTally
	if err := r.Objects().Tallies.Lookup(uint32(1), &tally); err != nil {
		t.Fatal(err)
	}
	for i, leaf := range tally.Leaf[:tally.Seats] {
		s := &tally.Seat[i]
		flows := (s.Count[0]+s.Count[1])>>32 + (s.Count[0]+s.Count[1])&(1<<32-1)
		if want := policy.Score(flows, s.Inverse); s.Inverse != 0 && leaf>>26 != want || leaf&1023 != uint64(i) && s.Inverse != 0 {
			t.Errorf("leaf %d has score %d of seat %d, want %d", i, leaf>>26, leaf&1023, want)
		}
	}
	for i, node := range tally.Node {
		if least := slices.Min(tally.Leaf[i*8 : i*8+8]); tally.Seats > 16 && node != least {
			t.Errorf("node %d is %x, want %x", i, node, least)
		}
	}
	for i, top := range tally.Top {
		if least := slices.Min(tally.Node[i*8 : i*8+8]); tally.Seats > 128 && top != least {
			t.Errorf("top %d is %x, want %x", i, top, least)
		}
	}
}

// TestLearnedRaces: where two CPUs see every packet of the same flows, in other orders, each flow
// counts once: the counts are those of the table, and the tree that of the counts.
func TestLearnedRaces(t *testing.T) {
	const seed, rounds, each, crowd = 3, 20, 1500, 300
	r := stalling(t, 512, learned(150))
	for round := range rounds {
		both(func(i int) {
			rng := rand.New(rand.NewPCG(seed, uint64(round*2+i)))
			for range each {
				flags := rig.AnyOf[byte](rng, wire.SYN, wire.ACK, wire.ACK, wire.ACK|wire.PSH, wire.FIN|wire.ACK, wire.RST)
				p := client(rng.IntN(crowd), flags)
				if flags == wire.ACK|wire.PSH {
					p = payload(p)
				}
				r.Run(t, p.Frame())
			}
		})
		wantRecount(t, r, 0)
		wantTree(t, r)
		if t.Failed() {
			t.Fatalf("after round %d (seed %d)", round, seed)
		}
		r.At(t, r.Now+3*seen) // some give way in the next round
		if round%4 == 3 {
			if _, err := r.Sweep(); err != nil {
				t.Fatal(err)
			}
			wantRecount(t, r, 0)
		}
	}
}

const seen = 1 << 30

// TestLearnedTreeRaces: after a few packets of two CPUs, again and again, the tree is right: a value
// that neither wrote last would stay so.
func TestLearnedTreeRaces(t *testing.T) {
	const seed, rounds, each = 4, 1500, 6
	r := stalling(t, 4096, learned(17))
	for round := range rounds {
		both(func(i int) {
			rng := rand.New(rand.NewPCG(seed, uint64(round*2+i)))
			for k := range each {
				r.Run(t, client((round*each+k)%20000, rig.AnyOf[byte](rng, wire.SYN, wire.SYN, wire.RST)).Frame())
			}
		})
		wantTree(t, r)
		if t.Failed() {
			t.Fatalf("after round %d (seed %d)", round, seed)
		}
	}
}

// TestLearnedExcess: while two CPUs begin flows at once, no server gets many more than another
// that is alike.
func TestLearnedExcess(t *testing.T) {
	const n, each = 130, 2000
	r := stalling(t, 16384, learned(n))
	both(func(i int) {
		for flow := range each {
			r.Run(t, client(i*each+flow, wire.SYN).Frame())
		}
	})
	least, most := uint32(each), uint32(0)
	for _, s := range seats(t, r, 0) {
		least, most = min(least, s.Embryonic), max(most, s.Embryonic)
	}
	if most > least+4 {
		t.Errorf("servers that are alike have %d to %d flows", least, most)
	}
	wantRecount(t, r, 0)
	wantTree(t, r)
}

// TestRecount: while flows come and go, a recount finds counts right; one that was wrong is right
// afterwards, in whichever direction.
func TestRecount(t *testing.T) {
	const seed = 9
	r := stalling(t, 1024, learned(20))
	spread := dataplane.Spread{Inverses: slices.Repeat([]uint32{1 << 16}, 20)}
	for round := range 6 {
		if round%2 == 1 {
			var tally objects.LBTally
			if err := r.Objects().Tallies.Lookup(uint32(1), &tally); err != nil {
				t.Fatal(err)
			}
			tally.Seat[3].Count[0] += 5 << 32
			tally.Seat[7].Count[1] -= 2
			if err := r.Objects().Tallies.Put(uint32(1), tally); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan bool)
		var packets sync.WaitGroup
		packets.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(round)))
			for {
				select {
				case <-done:
					return
				default:
				}
				r.Run(t, client(rng.IntN(900), rig.AnyOf[byte](rng, wire.SYN, wire.ACK, wire.ACK, wire.FIN|wire.ACK)).Frame())
			}
		})
		wrong, err := r.Recount()
		close(done)
		packets.Wait()
		if want := round % 2 * 2; err != nil || wrong != want {
			t.Errorf("round %d: %d counts were wrong, want %d; %v", round, wrong, want, err)
		}
		wantRecount(t, r, 0)
		if err := r.Spread(&r.Cfg.Services[0], spread); err != nil {
			t.Fatal(err)
		}
		wantTree(t, r)
	}
}
