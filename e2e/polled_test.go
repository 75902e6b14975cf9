package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

// spreadOf makes connections in turn, each with an exchange, and counts them by server.
func spreadOf(t *testing.T, bed *testbed.Bed, n int) map[string]int {
	t.Helper()
	spread := map[string]int{}
	for range n {
		conn := dial(t, bed)
		name, err := askLine(conn, "stay")
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
	eventually(t, server+" has its weight because of "+strings.Join(parts, ", "), func() bool {
		why := learnedOf(t, farm)[server].Why
		for _, part := range parts {
			if !strings.Contains(why, part) {
				return false
			}
		}
		return true
	})
}

// cpuOf returns what logs the share of a core that a node's daemon took since, and fails if it is above most
// percent.
func cpuOf(t *testing.T, farm *farmrun.Farm, n *testbed.Node) (spent func(what string, most float64)) {
	t.Helper()
	pid := farm.Daemon(n).Pid()
	before, began := ticksOf(t, pid), time.Now()
	return func(what string, most float64) {
		t.Helper()
		span, ms := time.Since(began), 10*(ticksOf(t, pid)-before)
		share := float64(ms) / 10 / span.Seconds()
		t.Logf("%s the daemon of %s took %d ms of CPU time in %v: %.1f %% of a core", what, n.Name, ms, span.Round(time.Millisecond), share)
		if share > most {
			t.Errorf("%s: %.1f %% of a core, want at most %.0f", what, share, most)
		}
	}
}

// ticksOf is the CPU time of a process, in units of 10 ms.
func ticksOf(t *testing.T, pid int) (ticks int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')'):]))
	for _, field := range fields[12:14] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return ticks
}

// TestPolled: by reports of real agents, with tags and real TCP, a server with 150 requests in hand gets few of
// 90 connections by awcmp, wrr-feedback and gsq2. An agent that ends reports no more: its server counts as
// the average, and gets its share, until another agent reports.
func TestPolled(t *testing.T) {
	const held, conns = 150, 90
	bed := up(t, testbed.Config{Servers: 3})
	s := settings(t, "ecmp")
	s.Measure, s.Lasting = topo.Sockets, true
	farm := start(t, bed, s)
	for _, n := range bed.Servers {
		workshop(t, bed, n, 0)
	}
	busy := bed.Servers[2]
	for range held { // by no LB
		conn, err := busy.DialContext(t.Context(), "tcp6", vip(bed).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	eventuallyIs(t, "open at "+busy.Name, held, func() uint32 { return loadAt(t, farm, busy).Open })
	answered := func() (all []uint64) {
		for _, n := range bed.Servers {
			var one uint64
			if r := status(t, farm, n).Reports; r != nil {
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
		eventually(t, label+": all agents are asked again", func() bool {
			for i, now := range answered() {
				if now < before[i]+2 {
					return false
				}
			}
			return true
		})
		wantWhy(t, farm, busy.Name, "150 requests in hand, of 32 workers and ")
		wantWhy(t, farm, bed.Servers[0].Name, "0 requests in hand, of 32 workers and ")
		eventually(t, label+": the weights are by reports", func() bool {
			w := learnedOf(t, farm)[busy.Name].Weight
			return w > 0 && (w < 0.1 || c.dispatch == topo.Gsq2)
		})
		if spread := spreadOf(t, bed, conns); spread[busy.Name] > c.most {
			t.Errorf("%s: connections %v, want at most %d at %s", label, spread, c.most, busy.Name)
		}
	}
	for _, n := range []*testbed.Node{bed.LBs[0], busy} {
		spent := cpuOf(t, farm, n)
		time.Sleep(time.Second)
		spent("with reports", 100)
	}
	end(t, farm.Daemon(busy), unix.SIGTERM)
	wantWhy(t, farm, busy.Name, "no report for ", "(no answer): average assumed")
	if spread := spreadOf(t, bed, conns); spread[busy.Name] < conns/6 {
		t.Errorf("without reports: connections %v, want about a third at %s", spread, busy.Name)
	}
	if err := farm.Launch(t.Context(), busy); err != nil {
		t.Fatal(err)
	}
	wantWhy(t, farm, busy.Name, "150 requests in hand")
	if r := status(t, farm, busy).Reports; r == nil || r.Answered == 0 || r.Refused != 0 || r.Limited != 0 {
		t.Errorf("reports of the new agent: %+v", r)
	}
}
