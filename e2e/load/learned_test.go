package load

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
)

// learnedOf is what the LB has learned of each server, by name.
func learnedOf(t *testing.T, farm *farmrun.Farm) map[string]api.LearnedStatus {
	t.Helper()
	all := map[string]api.LearnedStatus{}
	s := kit.Status(t, farm, farm.Bed.LBs[0])
	if len(s.Services) != 1 || s.Services[0].Learning == nil {
		return all
	}
	for _, server := range s.Services[0].Learning.Servers {
		all[server.Name] = server
	}
	return all
}

// TestLearned: agentless servers, of which the kernel's End.DT6 is all that is set up, and real TCP:
// flows that stay are spread evenly and counted, through a restart of the LB's daemon; then a slow
// server is learned, and gets fewer flows; in the end none is counted.
func TestLearned(t *testing.T) {
	const stay, workers = 40, 12
	bed := kit.Up(t, testbed.Config{Servers: 4})
	s := kit.Settings(t, "learned")
	s.Lasting = true
	farm := kit.Start(t, bed, s)
	for i, n := range bed.Servers {
		kit.Agentless(t, bed, farm.Daemon(n).Stop, n, testbed.DT6)
		takes := 20 * time.Millisecond
		if i == 3 {
			takes *= 4
		}
		kit.Workshop(t, bed, n, takes)
	}
	lb := bed.LBs[0]
	vip := netip.AddrPortFrom(bed.VIP, testbed.Port).String()
	kit.Eventually(t, "the LB knows its servers", func() bool { return len(learnedOf(t, farm)) == 4 })
	kit.Eventually(t, "the next hops are known", func() bool {
		for _, server := range learnedOf(t, farm) {
			if server.Weight == 0 {
				return false
			}
		}
		return true
	})

	var conns []net.Conn
	at := map[net.Conn]string{}
	spread := map[string]int{}
	for range stay {
		conn, err := bed.Client.DialContext(t.Context(), "tcp", vip)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		name, err := kit.AskLine(conn, "stay")
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		at[conn] = name
		spread[name]++
	}
	counted := func() bool {
		for name, server := range learnedOf(t, farm) {
			if int(server.Established) != spread[name] || server.Embryonic != 0 {
				return false
			}
		}
		return true
	}
	for name, n := range spread {
		if n != stay/4 {
			t.Errorf("%d flows at %s, want %d", n, name, stay/4)
		}
	}
	kit.Eventually(t, "all flows are counted", counted)
	kit.End(t, farm.Daemon(lb), unix.SIGTERM)
	for _, conn := range conns[:stay/2] {
		conn.Close()
		spread[at[conn]]--
	}
	if err := farm.Launch(t.Context(), lb); err != nil {
		t.Fatal(err)
	}
	if !kit.Status(t, farm, lb).Adopted {
		t.Error("the new daemon adopted nothing")
	}
	kit.Eventually(t, "the LB knows its servers again", func() bool { return len(learnedOf(t, farm)) == 4 })
	kit.Eventually(t, "flows that ended meanwhile are not counted, and the others are", counted)
	for _, conn := range conns[stay/2:] {
		if name, err := kit.AskLine(conn, "still here"); err != nil || name != at[conn] {
			t.Errorf("a flow of %s: %q, %v", at[conn], name, err)
		}
		conn.Close()
		spread[at[conn]]--
	}
	kit.Eventually(t, "no flow is counted", counted)

	slow := bed.Servers[3].Name
	var stop atomic.Bool
	var load sync.WaitGroup
	failed := atomic.Int64{}
	for range workers {
		load.Go(func() {
			for !stop.Load() {
				conn, err := bed.Client.DialContext(t.Context(), "tcp", vip)
				if err == nil {
					_, err = kit.AskLine(conn, "work")
					conn.Close()
				}
				if err != nil {
					failed.Add(1)
				}
			}
		})
	}
	kit.Eventually(t, "the slow server is known", func() bool {
		all := learnedOf(t, farm)
		for name, server := range all {
			if name != slow && (server.Mean == nil || all[slow].Mean == nil || server.Weight < 1.2*all[slow].Weight) {
				return false
			}
		}
		return len(all) == 4
	})
	stop.Store(true)
	load.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d connections failed", n)
	}
	kit.Eventually(t, "no flow is counted at last", counted)
	if t.Failed() {
		t.Logf("%+v", learnedOf(t, farm))
	}
	kit.End(t, farm.Daemon(lb), unix.SIGTERM)
	kit.In(t, lb, kit.Proffer, "detach")
}
