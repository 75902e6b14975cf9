package agentless

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"proffer/api"
	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

// A `single` service needs no agent: the kernel's End.DT6, End.DX6 and End.DX4
// (RFC 8986 §4.4 to §4.6) take what an LB sends, and our agent takes what a
// kernel sends.

// answerers makes connections to a VIP and counts the servers' answers.
func answerers(t *testing.T, bed *testbed.Bed, url string, conns int) map[string]int {
	t.Helper()
	args := []string{"-sS", "--fail", "--max-time", "60", "-H", "Connection: close"}
	for range conns {
		args = append(args, url+"/")
	}
	share := map[string]int{}
	for name := range strings.FieldsSeq(kit.In(t, bed.Client, "curl", args...)) {
		share[name]++
	}
	return share
}

// wantLearned gives the services of a farm to `learned`: all servers have flows, in turn, and are learned of, and
// no flow counts in the end.
func wantLearned(t *testing.T, farm *farmrun.Farm, names []string, conns int) {
	t.Helper()
	farm.Service.Dispatch = topo.Learned
	if err := farm.Reload(t.Context(), farm.Bed.LBs[0]); err != nil {
		t.Fatal(err)
	}
	all := func(is func(api.LearnedStatus) bool) func() bool {
		return func() bool {
			n := 0
			for _, svc := range kit.Status(t, farm, farm.Bed.LBs[0]).Services {
				for _, server := range svc.Learning.Servers {
					if is(server) {
						n++
					}
				}
			}
			return n == 2*len(names)
		}
	}
	kit.Eventually(t, "every server may get new flows", all(func(s api.LearnedStatus) bool { return s.Weight > 0 }))
	for _, at := range []string{kit.URL, kit.URL4} {
		share := answerers(t, farm.Bed, at, conns)
		for _, name := range names {
			if share[name] < conns/len(names)/2 {
				t.Errorf("%s: learned has %v, want about %d at each", at, share, conns/len(names))
			}
		}
	}
	kit.Eventually(t, "every server is learned of, and no flow counts", all(func(s api.LearnedStatus) bool {
		return s.Samples > 0 && s.Established == 0 && s.Embryonic == 0
	}))
}

// TestAgentless: one LB, two VIPs and every way to serve them: an agent, a kernel
// for itself, and a kernel for what is behind it.
func TestAgentless(t *testing.T) {
	const conns = 60
	bed := kit.Up(t, testbed.Config{Servers: 5})
	s := kit.Settings(t, "single")
	s.LB = func(lb *topo.LB) {
		six := lb.Services[0]
		four := six
		four.Name, four.VIP.Addr = "web4", bed.VIP4
		six.Servers, four.Servers = six.Servers[:3], six.Servers[2:]
		lb.Services = []topo.Service{six, four}
	}
	s.Agent = func(_ *testbed.Node, a *topo.Agent) {
		four := a.Services[0]
		four.Name, four.VIP.Addr = "web4", bed.VIP4
		a.Services = append(a.Services, four)
	}
	farm := kit.Start(t, bed, s)
	app := map[int]*testbed.Node{}
	for _, i := range []int{1, 4} {
		node, err := bed.Behind(bed.Servers[i], testbed.RoutedVeth)
		if err != nil {
			t.Fatal(err)
		}
		app[i] = node
	}
	for i, action := range map[int]testbed.Action{0: testbed.DT6, 1: testbed.DX6, 3: testbed.DX4, 4: testbed.DX4} {
		kit.Agentless(t, bed, farm.Daemon(bed.Servers[i]).Stop, bed.Servers[i], action)
	}
	kit.ServeAt(t, bed.VIP, bed.Servers[0], app[1], bed.Servers[2])
	kit.ServeAt(t, bed.VIP4, bed.Servers[2], bed.Servers[3], app[4])

	c := kit.Record(t, bed)
	for vip, names := range map[string][]string{kit.URL: {"s1", "s2-app", "s3"}, kit.URL4: {"s3", "s4", "s5-app"}} {
		share := answerers(t, bed, vip, conns)
		for _, name := range names { // by hash: none is left out in 10,000 million runs
			if share[name] == 0 {
				t.Errorf("%s never answered at %s: %v", name, vip, share)
			}
		}
	}
	kit.Settled(t, bed)
	c.Stop(t)
	kit.Judge(t, c.File, 10*conns)
	kit.WantGood(t, c.File, "ip.checksum.status", 5*conns)
	for range 3 {
		kit.WantMegabytes(t, bed, kit.URL)
		kit.WantMegabytes(t, bed, kit.URL4)
	}
}

// encapsulating lets the kernel of a node, which no daemon of ours runs on any
// more, send what is for a VIP through segments.
func encapsulating(t *testing.T, n *testbed.Node, vip netip.Addr, mode string, segments ...netip.Addr) {
	t.Helper()
	kit.SetSysctl(t, n, "net/ipv4/conf/all/forwarding", "1")
	for _, path := range []string{"conf/all/seg6_enabled", "conf/eth0/seg6_enabled", "conf/all/forwarding"} {
		kit.SetSysctl(t, n, "net/ipv6/"+path, "1")
	}
	kit.In(t, n, "ip", "sr", "tunsrc", "set", n.Loopback().String()) // inside the SR domain
	var list []string
	for _, s := range segments {
		list = append(list, s.String())
	}
	kit.In(t, n, "ip", "route", "replace", vip.String(), "encap", "seg6", "mode", mode, "segs", strings.Join(list, ","), "dev", "eth0")
}

// TestKernelEncapsulates: an agent takes what the kernel's own SRv6 sends to its
// SIDs, where a kernel in its place would: with an SRH for one segment, past
// other nodes, reduced, in both families.
func TestKernelEncapsulates(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2, Transits: 1})
	s := kit.Settings(t, "single")
	s.Agent = func(_ *testbed.Node, a *topo.Agent) {
		four := a.Services[0]
		four.Name, four.VIP.Addr = "web4", bed.VIP4
		a.Services = append(a.Services, four)
	}
	farm := kit.Start(t, bed, s)
	kit.ServeAt(t, bed.VIP, bed.Servers...)
	kit.ServeAt(t, bed.VIP4, bed.Servers...)
	agent, kernel, lb := bed.Servers[0], bed.Servers[1], bed.LBs[0]
	kit.Forget(t, farm.Daemon(lb))
	ours, transit := kit.DeliverSID(agent).Addr(), bed.Transits[0].SID

	c := kit.Record(t, bed)
	delivered := uint64(0)
	for vip, action := range map[netip.Addr]testbed.Action{bed.VIP: testbed.DT6, bed.VIP4: testbed.DX4} {
		at := map[netip.Addr]string{bed.VIP: kit.URL, bed.VIP4: kit.URL4}[vip]
		kit.Agentless(t, bed, farm.Daemon(kernel).Stop, kernel, action)
		for _, mode := range []string{"encap", "encap.red"} {
			for _, before := range [][]netip.Addr{nil, {transit}} {
				for _, sid := range []netip.Addr{kernel.SID, ours} {
					way := append(slices.Clone(before), sid)
					encapsulating(t, lb, vip, mode, way...)
					want := map[netip.Addr]string{kernel.SID: kernel.Name, ours: agent.Name}[sid]
					if share := answerers(t, bed, at, 3); share[want] != 3 {
						t.Errorf("%s %s by %v: answered by %v, want %s", at, mode, way, share, want)
					}
				}
			}
			before := delivered
			if delivered = kit.Counter(t, farm, "deliver", agent); delivered < before+2*3*4 { // SYN, ACK, request, FIN
				t.Errorf("%s %s: the agent delivered %d packets", at, mode, delivered-before)
			}
		}
	}
	kit.Settled(t, bed)
	w := kit.Recorded{Bed: bed, Frames: c.Stop(t)}
	w.WantOneSegmentLists(t, agent)
	kit.Judge(t, c.File, 200)
	if n := kit.Counter(t, farm, "drop_segments_left", agent); n > 0 {
		t.Errorf("the agent dropped %d packets", n)
	}
	wantUndelivered(t, bed, lb, ours, kernel.SID)
	kit.Eventually(t, "the agent drops what has segments left at its dt", func() bool {
		return kit.Counter(t, farm, "drop_segments_left", agent) > 0
	})
}

// wantUndelivered: dt ends a route (RFC 8986 §4.6 S02): nothing comes out of it
// where segments are left.
func wantUndelivered(t *testing.T, bed *testbed.Bed, lb *testbed.Node, segments ...netip.Addr) {
	t.Helper()
	encapsulating(t, lb, bed.VIP, "encap", segments...)
	const nothing = 28 // curl: timed out
	_, stderr, err := kit.Try(t, bed.Client, "curl", "-sS", "--max-time", "0.3", kit.URL)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(nothing)) {
		t.Errorf("by %v: %v %s", segments, err, stderr)
	}
}
