package nf_test

import (
	"net/netip"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/dataplane/nf"
	"proffer/proof/rig"
	"proffer/topo"
)

// measured is the costs of the functions of a chain at a node, by rate of packets.
func measured(t *testing.T, change func(*topo.Datapath), functions ...topo.Function) func(perSecond float64) time.Duration {
	t.Helper()
	cfg := config()
	cfg.Chains = []topo.Chain{{Service: costly, Functions: functions}}
	change(cfg)
	costs, err := nf.Measure(cfg)
	must(t, err)
	c, known := costs[costly]
	if !known || len(costs) != 1 {
		t.Fatalf("costs %v, want that of service %d", costs, costly)
	}
	return func(perSecond float64) time.Duration { return time.Duration(c.At(perSecond)) }
}

func as(*topo.Datapath)       {}
func own(cfg *topo.Datapath)  { cfg.Spread = true }
func none(cfg *topo.Datapath) { cfg.Clients = cfg.Clients[1:] } // IPv6 alone

// TestMeasure: a chain costs the time that its functions take, at every rate, where cores are CPUs and where they
// share them; more functions cost more.
func TestMeasure(t *testing.T) {
	enter(t)
	const each = 50 * time.Microsecond
	for label, change := range map[string]func(*topo.Datapath){"shared": as, "own": own} {
		one := measured(t, change, topo.Cost{Each: each})
		two := measured(t, change, topo.Cost{Each: each}, topo.Cost{Each: each})
		for _, rate := range []float64{100, 5000, 1e7} {
			if a, b := one(rate), two(rate); a < each || a > 10*each || b < 2*each || b > 20*each {
				t.Errorf("%s: at %v packets a second functions of %v cost %v and two %v", label, rate, each, a, b)
			}
		}
	}
}

// TestMeasureVirtual: a packet of a virtual core costs the time that it takes of it.
func TestMeasureVirtual(t *testing.T) {
	enter(t)
	got := measured(t, as, topo.Virtual{Each: time.Millisecond, Queue: 9}, topo.Cost{Each: time.Microsecond}, topo.Virtual{Each: time.Second / 500})
	if got(1e3) != 3*time.Millisecond || got(1e6) != 3*time.Millisecond {
		t.Errorf("costs %v and %v, want 3ms", got(1e3), got(1e6))
	}
}

// TestMeasurePasses: the packets of a measurement pass the chain, so that every function takes its
// part: by a firewall's rule, and in the family that NAT has an address for.
func TestMeasurePasses(t *testing.T) {
	enter(t)
	cost := topo.Cost{Each: 300 * time.Microsecond}
	smtp := topo.Rule{Allow: true, Protocol: 6, Low: 25, High: 25, Source: netip.MustParsePrefix("10.1.7.0/24"), Destination: netip.MustParsePrefix("192.0.2.128/25")}
	closed := topo.Firewall{Rules: []topo.Rule{{}, smtp}}
	for label, c := range map[string]struct {
		before topo.Function
		change func(*topo.Datapath)
		passes bool
	}{
		"allowed":          {topo.Firewall{Rules: []topo.Rule{{Source: netip.MustParsePrefix("10.1.0.0/17")}, smtp, {Allow: true}}}, as, true},
		"TCP alone":        {topo.Firewall{Rules: []topo.Rule{smtp}}, as, true},
		"all are denied":   {closed, as, false},
		"NAT of IPv6":      {topo.SourceNAT{Public6: public6, First: first, Ports: ports}, as, true},
		"NAT of no family": {topo.SourceNAT{Public4: public4, First: first, Ports: ports}, none, false},
	} {
		got := measured(t, c.change, c.before, cost)(1e3)
		if passes := got > cost.Each; passes != c.passes {
			t.Errorf("%s: a packet costs %v before a function of %v", label, got, cost.Each)
		}
	}
}

// TestMeasureLeavesNothing: a measurement is not seen in the node's own tables.
func TestMeasureLeavesNothing(t *testing.T) {
	b := newBench(t, rig.Hits{})
	cfg := config()
	_, err := nf.Measure(cfg)
	must(t, err)
	for core := range cfg.Cores {
		for _, service := range []int{costly, natted} {
			if n, err := b.Count(core, service); err != nil || n != (nf.Count{}) {
				t.Errorf("core %d, service %d: %+v, %v", core, service, n, err)
			}
		}
	}
	var key, value []byte
	if b.Objects().NatOut.Iterate().Next(&key, &value) {
		t.Error("NAT has bindings")
	}
	cfg.Link = "absent"
	if _, err := nf.Measure(cfg); err == nil {
		t.Error("a link that is not there is measured")
	}
}

// TestBusy: the kernel's run time of a core's program counts for that core alone. Where cores share
// CPUs, the time of one alone is known.
func TestBusy(t *testing.T) {
	stop, err := dataplane.CountRunTime()
	must(t, err)
	defer stop()
	const each = 3 * time.Millisecond
	busy := func(change func(*topo.Datapath), wait time.Duration) []time.Duration {
		b := newBench(t, rig.Hits{}, func(cfg *topo.Datapath) {
			cfg.Chains[0].Functions = []topo.Function{topo.Cost{Each: each}}
			change(cfg)
		})
		if out := b.run(t, around(to(0, costly), outward("udp", 4, 1).packet())); out.Action != redirect {
			t.Fatalf("action %d", out.Action)
		}
		time.Sleep(wait)
		all, err := b.Busy()
		must(t, err)
		return all
	}
	if all := busy(as, 0); all != nil {
		t.Errorf("two cores that share CPUs are busy for %v", all)
	}
	all := busy(func(cfg *topo.Datapath) { cfg.Cores = 1 }, 0)
	if len(all) != 1 || all[0] < each {
		t.Errorf("one core is busy for %v, after a packet of %v", all, each)
	}
	all = busy(own, 0) // a frame of BPF_PROG_RUN goes to no other CPU
	if len(all) != 2 || all[0] != 0 || all[1] != 0 {
		t.Errorf("two cores are busy for %v without a packet", all)
	}
	all = busy(func(cfg *topo.Datapath) {
		cfg.Chains[0].Functions = []topo.Function{topo.Virtual{Each: each, Queue: 1}}
	}, each)
	if len(all) != 2 || all[0] != each || all[1] != 0 {
		t.Errorf("two virtual cores are busy for %v, after a packet of %v at the first", all, each)
	}
}
