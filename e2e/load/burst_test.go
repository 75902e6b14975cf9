package load

import (
	"math"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
)

// TestBurstWithDelay: while the client's first packets cross a long way, no request is in
// progress anywhere, so that by those alone every first candidate would take its offers of
// a burst. Accepted connections on their way count, up to `cores`: a server with so many
// passes the next offers on. And a burst must not pile onto one server: random choice, the
// worst that may happen, gives every server a binomial share: mean + 5·sqrt(mean) is
// exceeded once in a million bursts.
func TestBurstWithDelay(t *testing.T) {
	const servers, burst = 12, 500
	const oneWay = 100 * time.Millisecond
	bed := kit.Up(t, testbed.Config{Servers: servers, Delay: testbed.Delay{Mean: oneWay}})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:static:2")) // as many as there are cores
	client := traffic.Client{To: kit.VIP(bed), Enter: bed.Client.Enter, Timeout: kit.Patience}
	run, err := client.Run(t.Context(), kit.Every(0, burst))
	if err != nil {
		t.Fatal(err)
	}
	share := map[string]int{}
	for _, row := range run.Rows {
		share[row.Server]++
		if row.Outcome != traffic.OK {
			t.Errorf("request %d: %s: %s", row.ID, row.Outcome, row.Cause)
		}
		if took := row.Connected - row.Started; took < 2*oneWay {
			t.Errorf("request %d had its SYN-ACK after %v: the way is shorter than said", row.ID, took)
		}
	}
	if passed := kit.Sum(kit.Decided(t, farm).Busy); passed < burst/2 {
		t.Errorf("%d of %d offers were passed on: connections on their way do not count", passed, burst)
	}
	mean := float64(burst) / servers
	bound := int(mean + 5*math.Sqrt(mean))
	for name, n := range share {
		if n > bound {
			t.Errorf("%s got %d of %d requests, random choice gives at most %d", name, n, burst, bound)
		}
	}
	t.Logf("shares (at most %d): %v", bound, share)
	if n := bed.DelayDrops(); n > 0 {
		t.Errorf("the delay box dropped %d frames", n)
	}
	kit.EventuallyIs(t, "requests in progress", 0, func() uint32 { return kit.LoadOfAll(t, farm).Asking })
	kit.EventuallyIs(t, "accepted, not arrived", 0, func() uint32 { return kit.LoadOfAll(t, farm).Expected })
}

// TestHalfOpenIsLittleLoad: offers that were taken and never arrive count, but
// at most `cores` of them: a flood of them must not make a server look full.
func TestHalfOpenIsLittleLoad(t *testing.T) {
	const servers, cores, volley = 3, 2, 60
	bed := kit.Up(t, testbed.Config{Servers: servers})
	kit.Serve(t, bed)
	for _, c := range []struct {
		policy string
		full   bool // cores of them reach the threshold
	}{{"hunt:static:3", false}, {"hunt:static:2", true}} {
		t.Run(c.policy, func(t *testing.T) {
			s := kit.Settings(t, c.policy)
			s.Cores = cores
			farm := kit.Start(t, bed, s)
			port, most := 1024, uint32(0)
			// They expire after a second, so a machine that is held up may not
			// see many at once: then again, from other ports.
			kit.Eventually(t, "a server expects more connections than it has cores", func() bool {
				var packets [][]byte
				for range volley {
					port++
					packets = append(packets, kit.BareSYN(bed, port, port, 0))
				}
				before := kit.Sum(kit.Decided(t, farm).Avail) + kit.Sum(kit.Decided(t, farm).Force)
				kit.SendRaw(t, bed, packets...)
				kit.Eventually(t, "the volley is taken", func() bool {
					d := kit.Decided(t, farm)
					return kit.Sum(d.Avail)+kit.Sum(d.Force) == before+volley
				})
				for _, n := range bed.Servers {
					most = max(most, kit.LoadAt(t, farm, n).Expected)
				}
				return most > cores
			})
			d := kit.Decided(t, farm)
			t.Logf("expected up to %d; taken %v, forced %v, passed on %v", most, d.Avail, d.Force, d.Busy)
			if passed := kit.Sum(d.Busy); (passed > 0) != c.full {
				t.Errorf("%d offers passed on, with at most %d of those on their way counted", passed, cores)
			}
			kit.EventuallyIs(t, "accepted, not arrived", 0, func() uint32 { return kit.LoadOfAll(t, farm).Expected })
			if err := farm.Stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
