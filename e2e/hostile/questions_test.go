package hostile

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/raw"
	"proffer/topo"
	"proffer/wire"
)

// crowdOf are the locators of servers that one node stands for: its kernel passes each question on
// (RFC 8986 §4.1, End), as an agent does that has no such flow.
func crowdOf(n int) (all []topo.Server) {
	for i := range n {
		at := testbed.ServerLocator(0x1000 + i)
		all = append(all, topo.Server{Name: fmt.Sprint("c", i), Locator: at, Weight: 1})
	}
	return all
}

// ofNoFlow floods the VIP with segments of no flow, each sent twice, as a forger repeats them.
func ofNoFlow(t *testing.T, bed *testbed.Bed, rate float64) (stop func() raw.Sent) {
	t.Helper()
	link, err := raw.Ethernet(bed.Client.Enter, "eth0", bed.VIP)
	if err != nil {
		t.Fatal(err)
	}
	frame := func(i int) []byte {
		i /= 2
		from := bed.ClientAddrs[0].As16()
		from[8], from[9], from[10] = 0x77, byte(i>>22), byte(i>>14)
		ip := wire.IP{Source: netip.AddrFrom16(from), Destination: bed.VIP, HopLimit: 64}
		segment := wire.TCP{From: uint16(1024 + i&0x3fff), To: testbed.Port, Seq: uint32(i), Flags: wire.ACK | wire.PSH}
		return append(link[:len(link):len(link)], ip.TCP(segment, []byte("payload"))...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var sent raw.Sent
	flooded := make(chan error, 1)
	go func() {
		var err error
		sent, err = raw.Forge{Interface: "eth0", Frame: frame, Frames: 1 << 22, Rate: rate, Enter: bed.Client.Enter}.Run(ctx)
		flooded <- err
	}()
	return func() raw.Sent {
		cancel()
		if err := <-flooded; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		return sent
	}
}

// TestFloodOfQuestions: segments of no flow, 2,500 a second and each sent twice, or as many as this machine
// carries, to a service of which 200 servers are asked. An LB without entries finds the owners of that
// service's flows, and of another of the same servers, and drops no question.
func TestFloodOfQuestions(t *testing.T) {
	const servers, flows = 200, 40
	bed := kit.Up(t, testbed.Config{Servers: 3, LBs: 2})
	owners, crowd, fresh := bed.Servers[:2], bed.Servers[2], bed.LBs[1]
	kit.Echoes(t, bed, owners...)
	s := kit.Settings(t, "lsq")
	s.LB = func(lb *topo.LB) {
		web := &lb.Services[0]
		web.Recovery, web.Servers = topo.AgentsRecovery, web.Servers[:len(owners)]
		if lb.Locator == fresh.Locator {
			web.Servers = slices.Concat(web.Servers, crowdOf(servers-len(owners)))
		}
		four := *web
		four.Name, four.VIP.Addr = "web4", bed.VIP4
		lb.Services = append(lb.Services, four)
	}
	s.Agent = func(_ *testbed.Node, a *topo.Agent) {
		four := a.Services[0]
		four.Name, four.VIP.Addr = "web4", bed.VIP4
		a.Services = append(a.Services, four)
	}
	farm := kit.Start(t, bed, s)
	if err := farm.Daemon(crowd).Stop(); err != nil {
		t.Fatal(err)
	}
	locators := netip.PrefixFrom(testbed.ServerLocator(0x1000).Addr(), 52)
	kit.KernelSRv6(t, crowd, locators, "End")
	kit.In(t, bed.Router, "ip", "-6", "route", "add", locators.String(), "via", crowd.Addr.String())

	if err := bed.Announce(bed.LBs[0]); err != nil {
		t.Fatal(err)
	}
	attacked, other := kit.Open(t, bed, 20000, flows), kit.OpenTo(t, bed, bed.VIP4, bed.ClientAddrs4, 20000, flows)
	if err := bed.Announce(fresh); err != nil {
		t.Fatal(err)
	}
	spent := kit.CPUOf(t, farm, fresh)
	stop := ofNoFlow(t, bed, 5000)
	kit.Eventually(t, "the LB asks about the flood", func() bool {
		time.Sleep(time.Second) // status costs CPU time, too
		return kit.Counter(t, farm, "recover", fresh) > 10_000
	})
	for name, f := range map[string]*traffic.Flows{"the attacked service": attacked, "the other service": other} {
		at := f.Servers()
		if dead, moved := kit.Lost(t, f, at); dead+moved > 0 {
			t.Errorf("of %d flows of %s %d were not answered, and %d by another server", flows, name, dead, moved)
		}
	}
	sent := stop()
	spent("beside a flood of questions", 20)
	counters := kit.Status(t, farm, fresh).Counters
	for name, n := range counters {
		if strings.HasPrefix(name, "drop_limit_") && n > 0 {
			t.Errorf("%s: %d packets", name, n)
		}
	}
	t.Logf("%.0f forged packets a second; all servers asked about %d, by %d lists more; %d flows found", sent.Rate(), counters["recover"], counters["list_continued"], counters["stickiness_recovered"])
}
