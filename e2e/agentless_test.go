package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"proffer/api"
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
	for name := range strings.FieldsSeq(in(t, bed.Client, "curl", args...)) {
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
			for _, svc := range status(t, farm, farm.Bed.LBs[0]).Services {
				for _, server := range svc.Learning.Servers {
					if is(server) {
						n++
					}
				}
			}
			return n == 2*len(names)
		}
	}
	eventually(t, "every server may get new flows", all(func(s api.LearnedStatus) bool { return s.Weight > 0 }))
	for _, at := range []string{url, url4} {
		share := answerers(t, farm.Bed, at, conns)
		for _, name := range names {
			if share[name] < conns/len(names)/2 {
				t.Errorf("%s: learned has %v, want about %d at each", at, share, conns/len(names))
			}
		}
	}
	eventually(t, "every server is learned of, and no flow counts", all(func(s api.LearnedStatus) bool {
		return s.Samples > 0 && s.Established == 0 && s.Embryonic == 0
	}))
}

// agentless ends the agent of a server and lets its kernel do the action.
func agentless(t *testing.T, bed *testbed.Bed, stop func() error, n *testbed.Node, action testbed.Action) {
	t.Helper()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := bed.Agentless(n, action); err != nil {
		t.Fatal(err)
	}
}

// TestAgentless: one LB, two VIPs and every way to serve them: an agent, a kernel
// for itself, and a kernel for what is behind it.
func TestAgentless(t *testing.T) {
	const conns = 60
	bed := up(t, testbed.Config{Servers: 5})
	s := settings(t, "single")
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
	farm := start(t, bed, s)
	app := map[int]*testbed.Node{}
	for _, i := range []int{1, 4} {
		node, err := bed.Behind(bed.Servers[i], testbed.RoutedVeth)
		if err != nil {
			t.Fatal(err)
		}
		app[i] = node
	}
	for i, action := range map[int]testbed.Action{0: testbed.DT6, 1: testbed.DX6, 3: testbed.DX4, 4: testbed.DX4} {
		agentless(t, bed, farm.Daemon(bed.Servers[i]).Stop, bed.Servers[i], action)
	}
	serveAt(t, bed.VIP, bed.Servers[0], app[1], bed.Servers[2])
	serveAt(t, bed.VIP4, bed.Servers[2], bed.Servers[3], app[4])

	c := record(t, bed)
	for vip, names := range map[string][]string{url: {"s1", "s2-app", "s3"}, url4: {"s3", "s4", "s5-app"}} {
		share := answerers(t, bed, vip, conns)
		for _, name := range names { // by hash: none is left out in 10,000 million runs
			if share[name] == 0 {
				t.Errorf("%s never answered at %s: %v", name, vip, share)
			}
		}
	}
	settled(t, bed)
	c.stop(t)
	judge(t, c.file, 10*conns)
	wantGood(t, c.file, "ip.checksum.status", 5*conns)
	for range 3 {
		wantMegabytes(t, bed, url)
		wantMegabytes(t, bed, url4)
	}
}

// encapsulating lets the kernel of a node, which no daemon of ours runs on any
// more, send what is for a VIP through segments.
func encapsulating(t *testing.T, n *testbed.Node, vip netip.Addr, mode string, segments ...netip.Addr) {
	t.Helper()
	setSysctl(t, n, "net/ipv4/conf/all/forwarding", "1")
	for _, path := range []string{"conf/all/seg6_enabled", "conf/eth0/seg6_enabled", "conf/all/forwarding"} {
		setSysctl(t, n, "net/ipv6/"+path, "1")
	}
	in(t, n, "ip", "sr", "tunsrc", "set", n.Loopback().String()) // inside the SR domain
	var list []string
	for _, s := range segments {
		list = append(list, s.String())
	}
	in(t, n, "ip", "route", "replace", vip.String(), "encap", "seg6", "mode", mode, "segs", strings.Join(list, ","), "dev", "eth0")
}

// TestKernelEncapsulates: an agent takes what the kernel's own SRv6 sends to its
// SIDs, where a kernel in its place would: with an SRH for one segment, past
// other nodes, reduced, in both families.
func TestKernelEncapsulates(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 2, Transits: 1})
	s := settings(t, "single")
	s.Agent = func(_ *testbed.Node, a *topo.Agent) {
		four := a.Services[0]
		four.Name, four.VIP.Addr = "web4", bed.VIP4
		a.Services = append(a.Services, four)
	}
	farm := start(t, bed, s)
	serveAt(t, bed.VIP, bed.Servers...)
	serveAt(t, bed.VIP4, bed.Servers...)
	agent, kernel, lb := bed.Servers[0], bed.Servers[1], bed.LBs[0]
	forget(t, farm.Daemon(lb))
	ours, transit := deliverSID(agent).Addr(), bed.Transits[0].SID

	c := record(t, bed)
	delivered := uint64(0)
	for vip, action := range map[netip.Addr]testbed.Action{bed.VIP: testbed.DT6, bed.VIP4: testbed.DX4} {
		at := map[netip.Addr]string{bed.VIP: url, bed.VIP4: url4}[vip]
		agentless(t, bed, farm.Daemon(kernel).Stop, kernel, action)
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
			if delivered = counter(t, farm, "deliver", agent); delivered < before+2*3*4 { // SYN, ACK, request, FIN
				t.Errorf("%s %s: the agent delivered %d packets", at, mode, delivered-before)
			}
		}
	}
	settled(t, bed)
	w := recorded{bed, c.stop(t)}
	w.wantOneSegmentLists(t, agent)
	judge(t, c.file, 200)
	if n := counter(t, farm, "drop_segments_left", agent); n > 0 {
		t.Errorf("the agent dropped %d packets", n)
	}
	wantUndelivered(t, bed, lb, ours, kernel.SID)
	eventually(t, "the agent drops what has segments left at its dt", func() bool {
		return counter(t, farm, "drop_segments_left", agent) > 0
	})
}

// wantOneSegmentLists: the kernel did send an SRH that names one segment alone.
func (w *recorded) wantOneSegmentLists(t *testing.T, n *testbed.Node) {
	t.Helper()
	alone := 0
	for _, f := range w.on(n, true) {
		if f.ip.next == routing && len(f.list) == 1 && f.left() == 0 && f.overhead() == ipv6+8+16 {
			alone++
		}
	}
	if alone == 0 {
		t.Error("no packet came with an SRH of one segment")
	}
}

// wantUndelivered: dt ends a route (RFC 8986 §4.6 S02): nothing comes out of it
// where segments are left.
func wantUndelivered(t *testing.T, bed *testbed.Bed, lb *testbed.Node, segments ...netip.Addr) {
	t.Helper()
	encapsulating(t, lb, bed.VIP, "encap", segments...)
	const nothing = 28 // curl: timed out
	_, stderr, err := try(t, bed.Client, "curl", "-sS", "--max-time", "0.3", url)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(nothing)) {
		t.Errorf("by %v: %v %s", segments, err, stderr)
	}
}
