package proof

import (
	"testing"
	"time"

	"proffer/lab/sim"
)

// TestNoneStarves: a server that other work slowed down for a while has no share of the flows of a farm
// that is half idle. After that work it gets its share again, as it is owed flows that show its speed.
// Without them it has none.
func TestNoneStarves(t *testing.T) {
	t.Parallel()
	const servers, slow, ends = 16, 5, 60 * time.Second
	f, err := sim.FarmB("hom")
	if err != nil {
		t.Fatal(err)
	}
	f.LBs, f.Servers = 1, f.Servers[:servers]
	f.Background = []sim.Background{{Servers: []int{slow}, To: ends, Cores: 0.95}}
	w := f.Load(0.3)
	w.Requests, w.KeepRows = 100_000, true
	for name, share := range map[string][2]float64{"learned": {0.5, 1.5}, "learned:completed": {0, 0.01}} {
		p, err := sim.ParsePolicy(name)
		if err != nil {
			t.Fatal(err)
		}
		result, err := sim.Run(f, p, w, 1)
		if err != nil {
			t.Fatal(err)
		}
		last := result.Rows[len(result.Rows)*3/4:]
		got := 0
		for _, row := range last {
			if row.Server == slow {
				got++
			}
		}
		t.Logf("%s: %d of %d flows at the server", name, got, len(last))
		if part := float64(got) * servers / float64(len(last)); part < share[0] || part > share[1] {
			t.Errorf("%s: %d of the last %d flows at the server that was slow, %.2f of its share", name, got, len(last), part)
		}
	}
}
