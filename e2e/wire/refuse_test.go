package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/topo"
)

// TestUnservedPort: an LB host that forwards, and a VIP's port without a service: ten datagrams
// are answered by the LB and go round nowhere. A forwarding kernel would return each to the
// router, and the router to the LB, until their hops end.
func TestUnservedPort(t *testing.T) {
	const datagrams, unserved = 10, 9999
	bed := kit.Up(t, testbed.Config{Servers: 2})
	s := kit.Settings(t, "hunt:static:4")
	s.LB = func(lb *topo.LB) {
		four := lb.Services[0]
		four.Name, four.VIP.Addr = "web4", bed.VIP4
		lb.Services = append(lb.Services, four)
	}
	kit.SetSysctl(t, bed.LBs[0], "net/ipv4/ip_forward", "1")
	kit.SetSysctl(t, bed.LBs[0], "net/ipv6/conf/all/forwarding", "1")
	farm := kit.Start(t, bed, s)
	c := kit.Record(t, bed)
	for _, vip := range []netip.Addr{bed.VIP, bed.VIP4} {
		to := netip.AddrPortFrom(vip, unserved).String()
		for range datagrams {
			conn, err := bed.Client.DialContext(t.Context(), "udp", to)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte("datagram")); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			conn.SetReadDeadline(time.Now().Add(kit.Within))
			if _, err := conn.Read(make([]byte, 9)); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatalf("a datagram to %s: %v, want refused", to, err)
			}
		}
		if conn, err := bed.Client.DialContext(t.Context(), "tcp", to); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a connection to %s: %v, %v, want refused", to, conn, err)
		}
	}
	kit.Settled(t, bed)
	c.Stop(t)
	// each datagram and its answer, on the client's link and on the LB's
	if frames := c.Count(t, "udp.port == 9999"); frames != 2*4*datagrams {
		t.Errorf("%d datagrams made %d frames, want %d", 2*datagrams, frames, 2*4*datagrams)
	}
	if n := kit.Counter(t, farm, "refuse_port", bed.LBs[0]); n != 2*(datagrams+1) {
		t.Errorf("refused %d, want %d", n, 2*(datagrams+1))
	}
}

// TestErrorsEndAtLB: an LB host that forwards, and servers to which there is no route: each ICMP
// error about an offer ends at the LB, as its destination is no address of the host.
func TestErrorsEndAtLB(t *testing.T) {
	const syns, from = 3, 1000 // each SYN an error, beside those about the LB's own checks

	for _, policy := range []string{"hunt:static:4", "single"} { // with tags, with flow labels
		t.Run(policy, func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 2})
			s := kit.Settings(t, policy)
			lb := bed.LBs[0]
			kit.SetSysctl(t, lb, "net/ipv6/conf/all/forwarding", "1")
			kit.SetSysctl(t, bed.Router, "net/ipv6/icmp/ratelimit", "0")
			farm := kit.Start(t, bed, s)
			for _, n := range bed.Servers {
				kit.In(t, bed.Router, "ip", "-6", "route", "del", n.Locator.String())
				kit.In(t, bed.Router, "ip", "-6", "route", "add", "unreachable", n.Locator.String())
			}
			c := kit.Record(t, bed)
			for i := range syns {
				kit.SendRaw(t, bed, kit.BareSYN(bed, from+i, 1, 0))
			}
			kit.Eventually(t, "errors about offers end at the LB", func() bool { return kit.Counter(t, farm, "drop_icmp_error", lb) >= syns })
			kit.Settled(t, bed)
			c.Stop(t)
			about := fmt.Sprintf("icmpv6.type == 1 && ipv6.dst == %s && tcp.srcport >= %d && tcp.srcport < %d", lb.Locator, from, from+syns)
			if frames := c.Count(t, about); frames != syns {
				t.Errorf("%d errors made %d frames", syns, frames)
			}
		})
	}
}
