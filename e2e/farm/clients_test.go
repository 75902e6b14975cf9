package farm

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/topo"
)

// atOne returns the server of a client's connections, of which there must be no other.
func atOne(t *testing.T, what string, f *traffic.Flows) string {
	t.Helper()
	at := f.Servers()
	for _, server := range at {
		if server != at[0] {
			t.Fatalf("%s: %d connections of one client are at %v", what, len(at), at)
		}
	}
	return at[0]
}

// TestAffinity: all connections of a client meet the server of its first one, in each mode, IPv6 and IPv4. An
// LB that gets them from another finds their server by the client's hash in `single`, and by the agents in `hunt`.
func TestAffinity(t *testing.T) {
	for _, mode := range []string{"hunt:static:65535", "single", "learned", "rr"} {
		t.Run(mode, func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 4, LBs: 2})
			kit.Echoes(t, bed, bed.Servers...)
			s := kit.Everywhere(bed, kit.Settings(t, mode))
			with := s.LB
			s.LB = func(lb *topo.LB) {
				with(lb)
				for i := range lb.Services {
					lb.Services[i].Affinity, lb.Services[i].AffinityTime = topo.ClientAffinity, topo.MaxAge
				}
			}
			kit.Start(t, bed, s)
			if err := bed.Announce(bed.LBs[0]); err != nil {
				t.Fatal(err)
			}
			servers := map[string]bool{}
			var last *traffic.Flows
			home := ""
			for vip, clients := range kit.Families(bed) {
				for i := range min(8, len(clients)) {
					first := kit.OpenTo(t, bed, vip, clients[i:i+1], 20000, 1)
					last = kit.OpenTo(t, bed, vip, clients[i:i+1], 21000, 20)
					home = atOne(t, vip.String(), last)
					if at := first.Servers()[0]; at != home {
						t.Errorf("%s: a client's first connection is at %s, the next at %s", vip, at, home)
					}
					servers[home] = true
				}
			}
			if len(servers) < 2 {
				t.Errorf("all clients are at %v", servers)
			}
			if mode == "learned" || mode == "rr" {
				return
			}
			if err := bed.Announce(bed.LBs[1]); err != nil {
				t.Fatal(err)
			}
			kit.Alive(t, "at another LB", last)
		})
	}
}

// TestAllow: a client outside the prefixes gets no answer, each of its packets is counted, and a reload that takes a
// prefix back ends what its clients have.
func TestAllow(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Echoes(t, bed, bed.Servers...)
	s := kit.Settings(t, "hunt:static:65535")
	served, other := bed.ClientAddrs[0], bed.ClientAddrs[1]
	allowed := served
	s.LB = func(lb *topo.LB) { lb.Services[0].Allow = []netip.Prefix{netip.PrefixFrom(allowed, 128)} }
	farm := kit.Start(t, bed, s)
	lb := bed.LBs[0]
	flows := kit.OpenTo(t, bed, bed.VIP, []netip.Addr{served}, 20000, 5)

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- bed.Client.Do(func() error {
			c, err := (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(other, 20000))}).DialContext(ctx, "tcp6", kit.VIP(bed).String())
			if err == nil {
				c.Close()
			}
			return err
		})
	}()
	kit.Eventually(t, "a stranger's SYN is dropped", func() bool { return kit.Counter(t, farm, "drop_not_allowed", lb) > 0 })
	cancel()
	if err := <-ended; err == nil {
		t.Error("a client outside the prefixes has a connection")
	}
	kit.Alive(t, "beside a stranger", flows)

	allowed = other
	if err := farm.Reload(t.Context(), lb); err != nil {
		t.Fatal(err)
	}
	kit.Alive(t, "of the client that is served now", kit.OpenTo(t, bed, bed.VIP, []netip.Addr{other}, 21000, 5))
	before := kit.Counter(t, farm, "drop_not_allowed", lb)
	ctx, cancel = context.WithCancel(t.Context())
	answers := make(chan []traffic.Answer, 1)
	go func() { answers <- flows.Exchange(ctx, kit.Within) }()
	kit.Eventually(t, "packets of the flows of before are dropped", func() bool { return kit.Counter(t, farm, "drop_not_allowed", lb) > before })
	cancel()
	for _, a := range <-answers {
		if a.Outcome == traffic.OK {
			t.Errorf("the flow from %s is answered, though its client is served no more", a.From)
		}
	}
}
