package learned

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"proffer/lab/sim"
	"proffer/topo"
)

// TestProgramsAgree: over 100,000 flows at four LBs of 128 servers, half of them with two cores, the
// programs and the simulated policy choose the same server for 99.9 % of the flows where the dispatch
// learns, else one of the same score: the simulated lsq and sed take a random one of those, the
// programs the one that changed longest ago.
func TestProgramsAgree(t *testing.T) {
	t.Parallel()
	flows := 100_000
	if n, err := strconv.Atoi(os.Getenv("PROFFER_FLOWS")); err == nil {
		flows = n
	}
	const idle = 0.3
	for _, c := range []struct {
		policy   string
		dispatch topo.Dispatch
		rtt      time.Duration // of clients
		rho      float64
		flows    int
	}{
		{"learned", topo.Learned, 0, 0.885, flows},
		{"learned", topo.Learned, 100 * time.Millisecond, 0.885, flows / 5},
		{"learned", topo.Learned, 0, idle, flows / 2},
		{"learned:literal", topo.LearnedLiteral, 20 * time.Millisecond, 0.885, flows / 5},
		{"learned:ages", topo.LearnedAges, 0, 0.885, flows / 5},
		{"lsq", topo.Lsq, 0, 0.885, flows / 5},
		{"sed", topo.Sed, 0, 0.885, flows / 5},
	} {
		t.Run(fmt.Sprint(c.policy, "/", c.rtt, "/", c.rho), func(t *testing.T) {
			f, err := sim.FarmB("c1:2")
			if err != nil {
				t.Fatal(err)
			}
			f.ClientRTT = sim.Deterministic(c.rtt)
			own, err := sim.ParsePolicy(c.policy)
			if err != nil {
				t.Fatal(err)
			}
			w := f.Load(c.rho)
			w.Requests = c.flows
			w.PacketRate = silence
			e := sim.NewEngine(f, own, w, 1)
			p := newPrograms(t, e, c.dispatch)
			if c.dispatch == topo.LearnedAges {
				p.talks = newTalks(p, 1)
			}
			e.Loop()
			if e.Fault != nil || e.Result.Open > 0 || p.chosen != c.flows {
				t.Fatalf("%d choices of %d, %d flows without an end, %v", p.chosen, c.flows, e.Result.Open, e.Fault)
			}
			t.Logf("%d flows in %v: %d at the same server, %d at one of the same score, %d at another; %d were owed", p.chosen, e.Now(), p.same, p.tied, p.chosen-p.same-p.tied, p.owed)
			if c.rho == idle && p.owed == 0 {
				t.Error("no server was owed a flow")
			}
			if other := p.chosen - p.same; c.dispatch.Learns() && other*1000 > p.chosen {
				t.Errorf("%d of %d flows are at another server than the policy's", other, p.chosen)
			}
			if other := p.chosen - p.same - p.tied; other*1000 > p.chosen {
				t.Errorf("%d of %d flows are at another server than the policy's, of another score", other, p.chosen)
			}
		})
	}
}
