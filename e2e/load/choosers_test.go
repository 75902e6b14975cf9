package load

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

// stayers opens connections that stay, and counts them by server.
func stayers(t *testing.T, bed *testbed.Bed, n int) (conns map[net.Conn]string, spread map[string]int) {
	t.Helper()
	conns, spread = map[net.Conn]string{}, map[string]int{}
	for range n {
		conn, err := bed.Client.DialContext(t.Context(), "tcp", netip.AddrPortFrom(bed.VIP, testbed.Port).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		name, err := kit.AskLine(conn, "stay")
		if err != nil {
			t.Fatal(err)
		}
		conns[conn] = name
		spread[name]++
	}
	return conns, spread
}

// stay checks that all connections still are where they were.
func stay(t *testing.T, label string, conns map[net.Conn]string) {
	t.Helper()
	for conn, name := range conns {
		if got, err := kit.AskLine(conn, "stay"); err != nil || got != name {
			t.Errorf("%s: a connection of %s: %q, %v", label, name, got, err)
		}
	}
}

// wantCounted waits until the LB counts flows as they are spread.
func wantCounted(t *testing.T, farm *farmrun.Farm, label string, spread map[string]int) {
	t.Helper()
	kit.Eventually(t, label+": flows are counted", func() bool {
		all := learnedOf(t, farm)
		for name, server := range all {
			if int(server.Established) != spread[name] || server.Embryonic != 0 {
				return false
			}
		}
		return len(all) == len(farm.Service.Servers)
	})
}

// TestChoosers: every mode that chooses among all servers, in turn by a reload, with
// real TCP: connections are spread as it has it, are counted, and stay when the next mode comes.
func TestChoosers(t *testing.T) {
	const conns = 40
	bed := kit.Up(t, testbed.Config{Servers: 3})
	farm := kit.Start(t, bed, kit.Settings(t, "single"))
	for _, n := range bed.Servers {
		kit.Workshop(t, bed, n, time.Millisecond)
	}
	farm.Service.Servers[2].Weight = 2
	names := []string{bed.Servers[0].Name, bed.Servers[1].Name, bed.Servers[2].Name}
	before := map[net.Conn]string{}
	for _, c := range []struct {
		dispatch    topo.Dispatch
		least, most [3]int
	}{
		{topo.Rr, [3]int{13, 13, 13}, [3]int{14, 14, 14}},
		{topo.Lsq, [3]int{13, 13, 13}, [3]int{14, 14, 14}},
		{topo.Sed, [3]int{10, 10, 20}, [3]int{10, 10, 20}},
		{topo.Lsq2, [3]int{10, 10, 10}, [3]int{17, 17, 17}},
		{topo.Sed2, [3]int{6, 6, 15}, [3]int{13, 13, 27}},
		{topo.Learned2, [3]int{10, 10, 10}, [3]int{17, 17, 17}},
		{topo.Ecmp, [3]int{2, 2, 2}, [3]int{30, 30, 30}}, // at random: a millionth is outside
		{topo.Wcmp, [3]int{0, 0, 6}, [3]int{25, 25, 34}},
	} {
		label := c.dispatch.String()
		farm.Service.Dispatch = c.dispatch
		if err := farm.Reload(t.Context(), bed.LBs[0]); err != nil {
			t.Fatal(err)
		}
		stay(t, label+" has come", before)
		for conn := range before {
			conn.Close()
		}
		kit.Eventually(t, label+": every server may get new flows", func() bool {
			all := learnedOf(t, farm)
			for _, server := range all {
				if server.Weight == 0 || server.Established > 0 {
					return false
				}
			}
			return len(all) == 3
		})
		now, spread := stayers(t, bed, conns)
		for i, name := range names {
			if n := spread[name]; n < c.least[i] || n > c.most[i] {
				t.Errorf("%s: %d of %d connections at %s, want %d to %d", label, n, conns, name, c.least[i], c.most[i])
			}
		}
		wantCounted(t, farm, label, spread)
		if why := learnedOf(t, farm)[names[2]].Why; why == "" || c.dispatch == topo.Sed && why != "as configured" {
			t.Errorf("%s: weight of %s because of %q", label, names[2], why)
		}
		before = now
	}
	if t.Failed() {
		t.Log(fmt.Sprint(learnedOf(t, farm)))
	}
}
