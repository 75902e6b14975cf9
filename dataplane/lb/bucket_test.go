package lb_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"proffer/dataplane/lb"
	"proffer/policy"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// randomBuckets gives a service a table of random buckets. Bucket i has members[i], as numbers of
// the farm, of which the first choices[i] are candidates.
func randomBuckets(t *testing.T, r *rig.LB, svc topo.Service, rng *rand.Rand, most int) (members [][]int, choices []int) {
	t.Helper()
	elements := make([]uint64, svc.Buckets)
	for i := range elements {
		list := rng.Perm(len(svc.Servers))[:1+rng.IntN(most)]
		choices = append(choices, rng.IntN(1+min(topo.MaxChoices, len(list))))
		members = append(members, list)
		var numbers []uint16
		for _, s := range list {
			number, ok := numberOf(r, s)
			if !ok {
				t.Fatalf("server %d has no number", s)
			}
			numbers = append(numbers, uint16(number))
		}
		elements = lb.Put(elements, i, numbers, choices[i])
	}
	table, err := lb.Load(elements)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	if err := r.Objects().Tables.Put(r.SlotOf(svc.VIP), table); err != nil {
		t.Fatal(err)
	}
	return members, choices
}

// serversIn are the servers of segments, in order.
func serversIn(segments []netip.Addr) (servers []int) {
	for _, s := range segments {
		servers = append(servers, int(s.As16()[7]))
	}
	return servers
}

// flowsOf calls f with a packet of a flow of each of n random buckets.
func flowsOf(svc topo.Service, n int, flags uint8, f func(bucket int, p rig.Packet)) {
	for i := range n {
		p := rig.Inward(svc.VIP.Port, flags)
		p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(i+1))
		f(int(policy.NewDigestKey(rig.CandidateKeyOfTests).Digest(p.Flow())>>32*rig.BucketsOfTests>>32), p)
	}
}

// TestRandomBuckets: the programs read from a bucket the members and candidates that were put
// into it: in offers, in questions, and of those that may signal.
func TestRandomBuckets(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, most := range []int{2, 3, 5, 64} {
		svc := rig.Hunting(2, 64)
		r := rig.NewLB(t, rig.Hits{}, svc)
		members, choices := randomBuckets(t, r, svc, rng, most)
		flowsOf(svc, 200, wire.SYN, func(bucket int, p rig.Packet) {
			want := members[bucket][:choices[bucket]]
			out := r.Send(t, p.Frame())
			if len(want) == 0 {
				out.Is(t, "no candidate", rig.XDPDrop, nil, "drop_no_server")
			} else if got := serversIn(segmentsOf(out.Frame, false)); !slices.Equal(got, want) {
				t.Fatalf("seed %d, bucket %d: offered to %v, want %v of %v", seed, bucket, got, want, members[bucket])
			}
		})
		flowsOf(svc, 200, wire.ACK, func(bucket int, p rig.Packet) {
			p.Hop = 200
			if met, _ := walk(r, t, p, false); !slices.Equal(servers(met), members[bucket]) {
				t.Fatalf("seed %d, bucket %d: asked %v, want %v", seed, bucket, met, members[bucket])
			}
		})
		flowsOf(svc, 200, wire.SYN, func(bucket int, p rig.Packet) {
			from := rng.IntN(64)
			answer := p.Reply(wire.SYN | wire.ACK)
			out := r.Send(t, rig.SignalFrom(from, answer, wire.CreateStickiness, wire.Generation(p.Seq)))
			if created := out.Action == rig.XDPTX; created != slices.Contains(members[bucket], from) {
				t.Fatalf("seed %d, bucket %d: server %d creates stickiness: %v (%v), members %v", seed, bucket, from, created, out.Reasons, members[bucket])
			}
		})
	}
}

// servers are those of visits.
func servers(met []visit) (list []int) {
	for _, v := range met {
		list = append(list, v.server)
	}
	return list
}

// TestRandomSingle: the first member takes new flows, and the last member is the presumed owner
// of the others, where the client's packets make the entries.
func TestRandomSingle(t *testing.T) {
	seed := rand.Uint64()
	svc := rig.Service(rig.HuntPort, topo.Single, 1, 64)
	r := rig.NewLB(t, rig.Hits{}, svc)
	members, choices := randomBuckets(t, r, svc, rand.New(rand.NewPCG(seed, 1)), 2)
	for _, flags := range []uint8{wire.SYN, wire.ACK} {
		flowsOf(svc, 200, flags, func(bucket int, p rig.Packet) {
			r.Table.Empty(t)
			want := members[bucket][len(members[bucket])-1]
			out := r.Send(t, p.Frame())
			if flags == wire.SYN {
				want = members[bucket][0]
			}
			if flags == wire.SYN && choices[bucket] == 0 {
				out.Is(t, "no candidate", rig.XDPDrop, nil, "drop_no_server")
			} else if got := serversIn(segmentsOf(out.Frame, false)); !slices.Equal(got, []int{want}) {
				t.Fatalf("seed %d, bucket %d: sent to %v, want %d of %v", seed, bucket, got, want, members[bucket])
			}
		})
	}
}
