package lb_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"proffer/dataplane"
	"proffer/policy"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// mode is a dispatch of a service of learned.
func mode(d topo.Dispatch) func(*topo.Service) {
	return func(s *topo.Service) { s.Dispatch = d }
}

// choosers are the modes that choose among all servers of a service.
func choosers() (all []topo.Dispatch) {
	for _, d := range topo.Dispatches() {
		if d.Seats() {
			all = append(all, d)
		}
	}
	return all
}

// scan chooses servers as the LB's programs should, in the slow and obvious way.
type scan struct {
	choice topo.Choice
	spread dataplane.Spread
	flows  []uint64 // of each server that count
	turn   uint32
	queues []dataplane.Queue // as reported
	begun  []uint32
}

func (s *scan) score(server int) uint64 {
	if s.spread.Inverses[server] == policy.NoInverse {
		return ^uint64(0)
	}
	return policy.Score(s.flows[server], s.spread.Inverses[server])
}

// wants reports whether a new flow with a digest may go to a server.
func (s *scan) wants(server int, digest uint64) error {
	rows, want := policy.Alias(s.spread.Shares), server
	switch s.choice {
	case topo.LeastOfAll:
		for i := range s.flows {
			if s.score(i) < s.score(want) {
				want = i
			}
		}
	case topo.BetterOfTwo:
		first, second := rows.Two(digest)
		want = first
		if s.score(second) < s.score(first) {
			want = second
		}
	case topo.LesserQueue:
		queue := func(i int) uint32 { return s.queues[i].Requests + s.begun[i] - s.queues[i].Begun }
		first, second := rows.Two(digest)
		want = first
		if queue(second) < queue(first) {
			want = second
		}
	case topo.ByWeight:
		want = rows.ByWeight(digest)
	case topo.InTurn:
		want = rows.InTurn(s.turn)
		s.turn++
	default:
		return fmt.Errorf("choice %d has no twin here", s.choice)
	}
	if want != server || s.spread.Inverses[server] == policy.NoInverse {
		return fmt.Errorf("server %d with %d flows and inverse %d, want server %d", server, s.flows[server], s.spread.Inverses[server], want)
	}
	return nil
}

// report has some agents report, some by requests before flows that have begun since.
func (s *scan) report(t *testing.T, rng *rand.Rand, r *rig.LB) {
	t.Helper()
	var some []dataplane.Queue
	for i := range s.queues {
		if rng.IntN(3) > 0 {
			s.queues[i] = dataplane.Queue{Server: i, Requests: rng.Uint32N(6), Begun: s.begun[i] - rng.Uint32N(min(3, s.begun[i]+1))}
			some = append(some, s.queues[i])
		}
	}
	if err := r.Queues(&r.Cfg.Services[0], some); err != nil {
		t.Fatal(err)
	}
	begun, err := r.Begun(&r.Cfg.Services[0])
	if err != nil || !slices.Equal(begun, s.begun) {
		t.Fatalf("%v have begun, %v; want %v", begun, err, s.begun)
	}
}

// randomSpread spreads by random weights, some of them 0.
func randomSpread(rng *rand.Rand, n int, choice topo.Choice) dataplane.Spread {
	w := make([]float64, n)
	for i := range w {
		w[i] = float64(1 + rng.IntN(4))
		if rng.IntN(8) == 0 && i > 0 {
			w[i] = 0
		}
	}
	return dataplane.Spread{Inverses: policy.Inverses(w), Shares: choice.Shares(w)}
}

// TestTwinChoosers: each new flow goes to the server that a scan in Go finds, in every mode, whatever
// flows and weights there are.
func TestTwinChoosers(t *testing.T) {
	for _, d := range choosers() {
		if d == topo.LearnedLiteral {
			continue // TestLearnedCounting
		}
		sizes := []int{1, 2, 17, topo.MaxSeats}
		if d.Row().Choice == topo.LeastOfAll {
			sizes = append(sizes, 16, 128, 129) // the levels of the tree
		}
		for _, n := range sizes {
			t.Run(fmt.Sprint(d, "/", n), func(t *testing.T) { twinChooser(t, d, n) })
		}
	}
}

// TestTwinByTable: each mode that looks at the table alone gives a flow the servers that the table has for
// it: all of them in order if it offers, or the first.
func TestTwinByTable(t *testing.T) {
	for _, d := range topo.Dispatches() {
		if d.Seats() {
			continue // TestTwinChoosers
		}
		for _, servers := range []int{1, 2, 17, 200} {
			t.Run(fmt.Sprint(d, "/", servers), func(t *testing.T) {
				r := rig.NewLB(t, rig.Hits{}, rig.Hunting(3, servers, func(s *topo.Service) { s.Dispatch = d }))
				for i := range 500 {
					p := rig.Inward(rig.HuntPort, wire.SYN)
					p.Src = netip.AddrPortFrom(rig.ClientAddr, uint16(i+1))
					want := r.List(t, 0, p.Flow())
					if !d.Offers() {
						want = want[:1]
					}
					if got := serversIn(segmentsOf(r.Send(t, p.Frame()).Frame, false)); !slices.Equal(got, want) {
						t.Fatalf("flow %d: to %v, want %v", i, got, want)
					}
				}
			})
		}
	}
}

func twinChooser(t *testing.T, d topo.Dispatch, n int) {
	const seed, steps = 17, 1500
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	r := learner(t, rig.Hits{}, learned(n, mode(d)))
	s := &scan{choice: d.Row().Choice, flows: make([]uint64, n), turn: tallyOf(t, r, 0).Walk, begun: make([]uint32, n), queues: make([]dataplane.Queue, n)}
	at := map[int]int{}
	for step := range steps {
		if step%700 == 0 {
			s.spread = randomSpread(rng, n, s.choice)
			if err := r.Spread(&r.Cfg.Services[0], s.spread); err != nil {
				t.Fatal(err)
			}
		}
		if step%50 == 0 {
			s.report(t, rng, r)
		}
		if flow := rng.IntN(step + 1); rng.IntN(3) == 0 {
			if server, known := at[flow]; known {
				r.Run(t, client(flow, wire.RST).Frame())
				s.flows[server]--
				delete(at, flow)
			}
			continue
		}
		syn := client(step, wire.SYN)
		server := serverIn(r.Run(t, syn.Frame()).Frame)
		if err := s.wants(server, r.Table.Key.Digest(syn.Flow())); err != nil {
			t.Fatalf("step %d (seed %d): %v", step, seed, err)
		}
		s.flows[server]++
		s.begun[server]++
		at[step] = server
		if rng.IntN(2) == 0 {
			r.Run(t, client(step, wire.ACK).Frame())
		}
	}
	for i, seat := range seats(t, r, 0) {
		if uint64(seat.Established+seat.Embryonic) != s.flows[i] {
			t.Errorf("server %d has %d and %d flows, want %d", i, seat.Established, seat.Embryonic, s.flows[i])
		}
	}
}

// reload gives the LB its service with another mode.
func reload(t *testing.T, r *rig.LB, d topo.Dispatch) {
	t.Helper()
	r.Cfg.Services[0].Dispatch = d
	if err := r.Configure(r.Cfg); err != nil {
		t.Fatal(err)
	}
}

// share sends the SYNs of new flows, the first of them numbered, and returns how many each of two servers has.
func share(t *testing.T, r *rig.LB, first, n int) (got [2]int) {
	t.Helper()
	for i := range n {
		got[serverIn(r.Run(t, client(first+i, wire.SYN).Frame()).Frame)]++
	}
	return got
}

// TestQueuesFromNow: where a reload has new flows follow reports, those begun under another mode count
// nothing, before there is a report; neither does a report to gsq2 of a time before.
func TestQueuesFromNow(t *testing.T) {
	const flows = 40
	r := learner(t, rig.Hits{}, learned(2, mode(topo.Wcmp), func(s *topo.Service) { s.Servers[1].Weight = 9 }))
	even := func(label string, first int) {
		t.Helper()
		if got := share(t, r, first, flows); max(got[0], got[1])-min(got[0], got[1]) > 1 {
			t.Errorf("%s: %v flows, want as many at either server", label, got)
		}
	}
	share(t, r, 0, 4*flows)
	reload(t, r, topo.Gsq2)
	even("after wcmp", 1000)
	if err := r.Queues(&r.Cfg.Services[0], []dataplane.Queue{{Server: 0, Requests: 900}, {Server: 1, Requests: 1}}); err != nil {
		t.Fatal(err)
	}
	reload(t, r, topo.Wcmp)
	share(t, r, 2000, 4*flows)
	reload(t, r, topo.Gsq2)
	even("after wcmp again", 3000)
}

// TestQueuesKept: a reload of gsq2 keeps the reports.
func TestQueuesKept(t *testing.T) {
	r := learner(t, rig.Hits{}, learned(2, mode(topo.Gsq2)))
	if err := r.Queues(&r.Cfg.Services[0], []dataplane.Queue{{Server: 1, Requests: 900}}); err != nil {
		t.Fatal(err)
	}
	reload(t, r, topo.Gsq2)
	if got := share(t, r, 0, 40); got[1] != 0 {
		t.Errorf("%v flows, want none at the busy server", got)
	}
}

// TestQueuesOfAnotherSeat: a server that left and came back begins its count again. An answer to a request
// of before, or two CPUs that lost a flow of the count, do not make its queue endless.
func TestQueuesOfAnotherSeat(t *testing.T) {
	r := learner(t, rig.Hits{}, learned(2, mode(topo.Gsq2)))
	if err := r.Queues(&r.Cfg.Services[0], []dataplane.Queue{{Server: 0, Requests: 1, Begun: 5000}, {Server: 1, Requests: 30}}); err != nil {
		t.Fatal(err)
	}
	if got := share(t, r, 0, 50); got[0] < 29+10 || got[1] < 10 {
		t.Errorf("%v flows, want the first 29 and half of the others at the server with 1 request", got)
	}
	at := uint32(1)
	tally := tallyOf(t, r, 0)
	tally.Seat[0].Reported, tally.Seat[1].Reported = 1<<32|5000, 30<<32|uint64(tally.Seat[1].Begun)
	if err := r.Objects().Tallies.Put(at, tally); err != nil {
		t.Fatal(err)
	}
	if got := share(t, r, 1000, 29); got[1] != 0 {
		t.Errorf("%v flows, want none at the server with 30 requests", got)
	}
}

// TestWeightsAtOnce: without any step, configured weights are those of the configuration.
func TestWeightsAtOnce(t *testing.T) {
	weighted := func(d topo.Dispatch) topo.Service {
		return learned(4, mode(d), func(s *topo.Service) {
			for i, w := range []int{1, 0, 2, 5} {
				s.Servers[i].Weight = w
			}
		})
	}
	const flows = 8000
	for d, want := range map[topo.Dispatch][4]float64{
		topo.Wcmp: {1. / 8, 0, 2. / 8, 5. / 8}, topo.Sed: {1. / 8, 0, 2. / 8, 5. / 8},
		topo.Ecmp: {1. / 3, 0, 1. / 3, 1. / 3}, topo.Lsq: {1. / 3, 0, 1. / 3, 1. / 3}, topo.Rr: {1. / 3, 0, 1. / 3, 1. / 3},
	} {
		r := learner(t, rig.Hits{}, weighted(d))
		got := [4]float64{}
		for i := range flows {
			got[serverIn(r.Run(t, client(i, wire.SYN).Frame()).Frame)] += 1. / flows
		}
		for i := range got {
			if off := got[i] - want[i]; off > 0.03 || off < -0.03 || want[i] == 0 && got[i] > 0 {
				t.Errorf("%v: server %d has %.3f of the flows, want %.3f", d, i, got[i], want[i])
			}
		}
	}
}

// TestPresumedByWeight: another LB presumes the server that a flow of ecmp or wcmp has, as long as both
// have the same servers, in whichever order these came.
func TestPresumedByWeight(t *testing.T) {
	for _, d := range []topo.Dispatch{topo.Ecmp, topo.Wcmp} {
		first, other := learner(t, rig.Hits{}, learned(6, mode(d))), learner(t, rig.Hits{}, learned(3, mode(d)))
		other.Cfg.Services = []topo.Service{learned(6, mode(d))}
		if err := other.Configure(other.Cfg); err != nil {
			t.Fatal(err)
		}
		hopsOf(t, other)
		for i := range 200 {
			server := sendTo(t, first, "SYN", client(i, wire.SYN), -1, "deliver", "flow_begun")
			sendTo(t, other, "data at another LB", client(i, wire.ACK), server, "recover_presumed", "flow_begun")
		}
	}
}

// TestRowsOfBefore: while rows still name a server that drains, new flows go by the table.
func TestRowsOfBefore(t *testing.T) {
	for _, d := range []topo.Dispatch{topo.Ecmp, topo.Rr, topo.Lsq2} {
		r := learner(t, rig.Hits{}, learned(2, mode(d), drained(0)))
		if err := r.Spread(&r.Cfg.Services[0], dataplane.Spread{Inverses: []uint32{0, 1 << 16}, Shares: []float64{1, 1}}); err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			sendTo(t, r, "SYN", client(i, wire.SYN), 1, "deliver", "flow_begun")
		}
	}
}
