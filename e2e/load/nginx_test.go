package load

import (
	"fmt"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

// requests makes connections one after another, a request on each, and returns
// each server's answers and the agents' decisions.
func requests(t *testing.T, farm *farmrun.Farm, n int) (share map[string]int, d kit.Decisions) {
	t.Helper()
	share = map[string]int{}
	before := kit.Decided(t, farm)
	for range n {
		c := kit.Dial(t, farm.Bed)
		share[kit.Get(t, c, "/")]++
		c.Close()
	}
	return share, kit.Decided(t, farm).Since(before)
}

// TestIdleConnections: 200 idle keep-alive connections a server, as browsers
// leave them, are no load: hunting does with them what it does without.
func TestIdleConnections(t *testing.T) {
	const idle, probes = 200, 200
	bed := kit.Up(t, testbed.Config{Servers: 4})
	let := make(chan struct{})
	for _, n := range bed.Servers {
		kit.Nginx(t, bed, n, let)
	}
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:4"))
	asFree := func(when string) {
		t.Helper()
		share, d := requests(t, farm, probes)
		t.Logf("%s: answered %v, first %v, forced %v, passed on %v", when, share, d.Avail, d.Force, d.Busy)
		if kit.Sum(d.Avail) != probes || kit.Sum(d.Busy)+kit.Sum(d.Force) != 0 {
			t.Errorf("%s: %d of %d taken by the first candidate, %d passed on, %d forced", when, kit.Sum(d.Avail), probes, kit.Sum(d.Busy), kit.Sum(d.Force))
		}
		for _, n := range bed.Servers { // binomial: mean 50, standard deviation 6.1
			if share[n.Name] < probes/4-35 || share[n.Name] > probes/4+35 {
				t.Errorf("%s: %s answered %d of %d", when, n.Name, share[n.Name], probes)
			}
		}
	}
	asFree("without idle connections")
	open := 0
	for ; !eachHas(t, bed, idle); open++ {
		c := kit.Dial(t, bed)
		if open%2 == 0 { // half of them have had an answer, half have asked nothing yet
			kit.Get(t, c, "/")
		}
	}
	t.Logf("%d idle connections", open)
	kit.EventuallyIs(t, "requests in progress", 0, func() uint32 { return kit.LoadOfAll(t, farm).Asking })
	asFree("with idle connections")
	if !eachHas(t, bed, idle) {
		t.Error("the idle connections did not last")
	}

	t.Run("requests in progress", func(t *testing.T) {
		made := uint32(0)
		kit.WantStatic(t, farm, 4, 24, func() {
			fmt.Fprint(kit.Dial(t, bed), "GET /held HTTP/1.1\r\nHost: web\r\n\r\n")
			made++
			kit.EventuallyIs(t, "requests in progress", made, func() uint32 { return kit.LoadOfAll(t, farm).Asking })
		}, func(i int) uint64 { return uint64(kit.LoadAt(t, farm, bed.Servers[i]).Asking) })
		close(let)
		kit.EventuallyIs(t, "requests in progress", 0, func() uint32 { return kit.LoadOfAll(t, farm).Asking })
	})

	t.Run("counter-example", func(t *testing.T) { // the same connections by the signal that counts them
		if err := farm.Stop(); err != nil {
			t.Fatal(err)
		}
		s := kit.Settings(t, "hunt:static:4")
		s.Measure = topo.Sockets
		farm := kit.Start(t, bed, s)
		if _, d := requests(t, farm, 50); kit.Sum(d.Avail) != 0 || kit.Sum(d.Busy) != 50 || kit.Sum(d.Force) != 50 {
			t.Errorf("load: sockets let %v take, %v pass on", d.Avail, d.Busy)
		}
	})
}

// eachHas reports whether every server has so many established connections.
func eachHas(t *testing.T, bed *testbed.Bed, n int) bool {
	t.Helper()
	for _, s := range bed.Servers {
		if len(kit.TCP6(t, bed, s, "01")) < n {
			return false
		}
	}
	return true
}
