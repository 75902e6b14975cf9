package load

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

// spreadOf makes connections in turn, each with an exchange, and counts them by server.
func spreadOf(t *testing.T, bed *testbed.Bed, n int) map[string]int {
	t.Helper()
	spread := map[string]int{}
	for range n {
		conn := kit.Dial(t, bed)
		name, err := kit.AskLine(conn, "stay")
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		spread[name]++
	}
	return spread
}

// wantWhy waits until the LB's reason for the weight of a server has all parts.
func wantWhy(t *testing.T, farm *farmrun.Farm, server string, parts ...string) {
	t.Helper()
	kit.Eventually(t, server+" has its weight because of "+strings.Join(parts, ", "), func() bool {
		why := learnedOf(t, farm)[server].Why
		for _, part := range parts {
			if !strings.Contains(why, part) {
				return false
			}
		}
		return true
	})
}

// TestPolled: by reports of real agents, with tags and real TCP, a server with 150 requests in hand gets few of
// 90 connections by awcmp, wrr-feedback and gsq2. An agent that ends reports no more: its server counts as
// the average, and gets its share, until another agent reports.
func TestPolled(t *testing.T) {
	const held, conns = 150, 90
	bed := kit.Up(t, testbed.Config{Servers: 3})
	s := kit.Settings(t, "ecmp")
	s.Measure, s.Lasting = topo.Sockets, true
	farm := kit.Start(t, bed, s)
	for _, n := range bed.Servers {
		kit.Workshop(t, bed, n, 0)
	}
	busy := bed.Servers[2]
	for range held { // by no LB
		conn, err := busy.DialContext(t.Context(), "tcp6", kit.VIP(bed).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	kit.EventuallyIs(t, "open at "+busy.Name, held, func() uint32 { return kit.LoadAt(t, farm, busy).Open })
	answered := func() (all []uint64) {
		for _, n := range bed.Servers {
			var one uint64
			if r := kit.Status(t, farm, n).Reports; r != nil {
				one = r.Answered
			}
			all = append(all, one)
		}
		return all
	}
	for _, c := range []struct {
		dispatch topo.Dispatch
		most     int // connections at the busy server, where alike servers have 30
	}{{topo.Awcmp, 8}, {topo.WrrFeedback, 10}, {topo.Gsq2, 0}} {
		label := c.dispatch.String()
		farm.Service.Dispatch = c.dispatch
		if err := farm.Reload(t.Context(), bed.LBs[0]); err != nil {
			t.Fatal(err)
		}
		before := answered()
		kit.Eventually(t, label+": all agents are asked again", func() bool {
			for i, now := range answered() {
				if now < before[i]+2 {
					return false
				}
			}
			return true
		})
		wantWhy(t, farm, busy.Name, "150 requests in hand, of 32 workers and ")
		wantWhy(t, farm, bed.Servers[0].Name, "0 requests in hand, of 32 workers and ")
		kit.Eventually(t, label+": the weights are by reports", func() bool {
			w := learnedOf(t, farm)[busy.Name].Weight
			return w > 0 && (w < 0.1 || c.dispatch == topo.Gsq2)
		})
		if spread := spreadOf(t, bed, conns); spread[busy.Name] > c.most {
			t.Errorf("%s: connections %v, want at most %d at %s", label, spread, c.most, busy.Name)
		}
	}
	for _, n := range []*testbed.Node{bed.LBs[0], busy} {
		spent := kit.CPUOf(t, farm, n)
		time.Sleep(time.Second)
		spent("with reports", 100)
	}
	kit.End(t, farm.Daemon(busy), unix.SIGTERM)
	wantWhy(t, farm, busy.Name, "no report for ", "(no answer): average assumed")
	if spread := spreadOf(t, bed, conns); spread[busy.Name] < conns/6 {
		t.Errorf("without reports: connections %v, want about a third at %s", spread, busy.Name)
	}
	if err := farm.Launch(t.Context(), busy); err != nil {
		t.Fatal(err)
	}
	wantWhy(t, farm, busy.Name, "150 requests in hand")
	if r := kit.Status(t, farm, busy).Reports; r == nil || r.Answered == 0 || r.Refused != 0 || r.Limited != 0 {
		t.Errorf("reports of the new agent: %+v", r)
	}
}
