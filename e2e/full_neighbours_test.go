package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"proffer/lab/guest"
	"proffer/lab/testbed"
	"proffer/topo"
)

// fillNeighbours is a program of a guest whose tables of neighbours get room for 32: it has the kernel look for
// 20 other addresses of the link a second, of either family, for longer than the kernel spares a neighbour that is
// not held (5 s, neigh_forced_gc). It prints the tables that the kernel named as full.
const fillNeighbours = `#!/bin/sh
for f in ipv4 ipv6; do
	for n in 1 2 3; do echo $((8 << n >> 1)) >/proc/sys/net/$f/neigh/default/gc_thresh$n; done
done
sleep 7
for round in $(seq 12); do
	for i in $(seq 20); do
		ping -6 -c 1 -W 1 %[1]s$((round * 100 + i)) >/dev/null 2>&1 &
		ping -4 -c 1 -W 1 %[2]s$(((round * 20 + i) %% 240 + 10)) >/dev/null 2>&1 &
	done
	sleep 1
done
dmesg | grep -o '[a-z]*_cache: neighbor table overflow' | sort -u
`

// TestFullNeighbours: on a machine whose tables of neighbours are full in both families, an LB keeps its
// gateways: flows go on, and new ones begin.
func TestFullNeighbours(t *testing.T) {
	t.Parallel()
	const flows = 20
	bed := up(t, testbed.Config{Servers: 2})
	s := settings(t, "hunt:static:4")
	s.LB = func(lb *topo.LB) {
		four := lb.Services[0]
		four.Name, four.VIP.Addr = "web4", bed.VIP4
		lb.Services = append(lb.Services, four)
	}
	s.Agent = func(_ *testbed.Node, a *topo.Agent) {
		four := a.Services[0]
		four.Name, four.VIP.Addr = "web4", bed.VIP4
		a.Services = append(a.Services, four)
	}
	farm := start(t, bed, s)
	lb := bed.LBs[0]
	echoes(t, bed, bed.Servers...)
	forget(t, farm.Daemon(lb))
	g := guestLB(t, bed, lb)
	open6, open4 := open(t, bed, 20000, flows), openTo(t, bed, bed.VIP4, bed.ClientAddrs4, 20000, flows)

	full := make(chan string, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		out, err := g.Run(ctx, "fill-neighbours")
		full <- fmt.Sprint(out, err)
	}()
	refused := ""
	for i := 0; refused == ""; i++ {
		alive(t, "beside a full table, IPv6", open6)
		alive(t, "beside a full table, IPv4", open4)
		open(t, bed, 21000+100*i, 2)
		openTo(t, bed, bed.VIP4, bed.ClientAddrs4, 21000+100*i, 2)
		select {
		case refused = <-full:
		case <-time.After(200 * time.Millisecond):
		}
	}
	if refused != "arp_cache: neighbor table overflow\nndisc_cache: neighbor table overflow\n<nil>" {
		t.Errorf("not both tables were full: %q", refused)
	}
	wantHeld(t, g, lb.Addr.Prev(), lb.Addr4.Prev())
	if n := statusIn(t, g, bed, lb).Counters["drop_no_next_hop"]; n > 0 {
		t.Errorf("%d packets had no next hop", n)
	}
}

// wantHeld: the guest's kernel has these neighbours, and spares them.
func wantHeld(t *testing.T, g *guest.Guest, gateways ...netip.Addr) {
	t.Helper()
	for _, a := range gateways {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		out, err := g.Run(ctx, "ip", "neigh", "show", "to", a.String(), "dev", "eth0")
		cancel()
		if err != nil || !strings.Contains(out, "lladdr") {
			t.Errorf("the gateway %s: %q, %v", a, out, err)
		}
		t.Log(strings.TrimSpace(out))
	}
}
