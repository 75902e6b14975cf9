package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"proffer/topo"
)

func server(i, weight int) topo.Server {
	locator := netip.MustParsePrefix(fmt.Sprintf("fd00:0:0:%x::/64", 0x100+i))
	return topo.Server{Name: fmt.Sprint("s", i), Locator: locator, Weight: weight}
}

// pool draws servers.
func pool(rng *rand.Rand) (servers []topo.Server) {
	for i := range 6 {
		if rng.IntN(2) == 0 {
			servers = append(servers, server(i, rng.IntN(3)))
		}
	}
	return servers
}

// random draws a configuration of up to five services at two addresses.
func random(rng *rand.Rand) *topo.LB {
	cfg := &topo.LB{}
	if k := rng.IntN(3); k > 0 {
		cfg.Keys = []topo.SignalKey{{ID: uint8(k)}}
	}
	for port := range 5 {
		if rng.IntN(3) == 0 {
			continue
		}
		svc := topo.Service{
			Name: fmt.Sprint("web", port), Buckets: []int{7, 7, 11}[rng.IntN(3)], Choices: 1 + rng.IntN(2),
			VIP:     topo.VIP{Addr: netip.MustParseAddr(fmt.Sprint("2001:db8::", port%2+1)), Port: uint16(80 + port)},
			Servers: pool(rng),
		}
		if rng.IntN(2) == 0 {
			svc.Dispatch = topo.Hunt
			svc.History = []topo.Version{{Version: 1, Servers: pool(rng)}}
		}
		if rng.IntN(3) == 0 {
			svc.Fragments = topo.HashFragments
		}
		if rng.IntN(4) == 0 {
			svc.Via = []netip.Addr{netip.MustParseAddr("fd00:0:0:7::1")}
		}
		cfg.Services = append(cfg.Services, svc)
	}
	return cfg
}

// shuffled is a configuration in another order, on which marks depend.
func shuffled(rng *rand.Rand, cfg *topo.LB) *topo.LB {
	other := &topo.LB{Node: cfg.Node, Services: slices.Clone(cfg.Services)}
	rng.Shuffle(len(other.Services), func(i, j int) {
		other.Services[i], other.Services[j] = other.Services[j], other.Services[i]
	})
	return other
}

func must(t *testing.T, cfg *topo.LB, have *State) *State {
	t.Helper()
	want, err := Want(cfg, have)
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// TestPlanDelivery: a server with another delivery is written again, and neither leaves nor joins a
// table.
func TestPlanDelivery(t *testing.T) {
	cfg := func(d topo.Delivery, vni int) *topo.LB {
		s := topo.Server{Name: "s", Delivery: d, Address: netip.MustParseAddr("10.0.0.3"), VNI: vni, Weight: 1}
		return &topo.LB{Services: []topo.Service{{
			Name: "web", Dispatch: topo.Single, Buckets: 7, VIP: topo.VIP{Addr: netip.MustParseAddr("2001:db8::1"), Port: 80}, Servers: []topo.Server{s},
		}}}
	}
	have := must(t, cfg(topo.ByVXLAN, 100), &State{})
	for _, c := range []struct {
		d    topo.Delivery
		vni  int
		want string
	}{
		{topo.ByVXLAN, 100, ""},
		{topo.ByVXLAN, 101, "add server s 10.0.0.3 weight 1 to web\n"},
		{topo.ByL2, 0, "add server s 10.0.0.3 weight 1 to web\nmake a table for web: 7 lists\nserve web at [2001:db8::1]:80 by its new table and settings\nwait for the packets on their way\nfree the old table of web\n"},
	} {
		if got := New(have, must(t, cfg(c.d, c.vni), have)).String(); got != c.want {
			t.Errorf("%v, %d: got\n%swant\n%s", c.d, c.vni, got, c.want)
		}
	}
}

// TestPlan: a plan's steps lead a data plane from any state to any other one; between
// two steps each service is as it was or as it is wanted, and no packet reads a table
// with a server that has no number. There is no step where nothing differs.
func TestPlan(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("PROFFER_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	have, m, seen := &State{}, newModel(), map[Verb]int{}
	cfg := &topo.LB{}
	for i := range 2000 {
		if cfg = shuffled(rng, cfg); i%4 < 3 {
			cfg = random(rng)
		}
		want := must(t, cfg, have)
		p := New(have, want)
		m.want = want
		for at, s := range p.Steps {
			seen[s.Verb]++
			err := m.apply(s)
			if err == nil {
				err = m.whole(have, want)
			}
			if err != nil {
				t.Fatalf("plan %d, step %d (%s): %v\n%s", i, at, s, err, p)
			}
		}
		if err := m.reached(want); err != nil {
			t.Fatalf("plan %d: %v\n%s", i, err, p)
		}
		if again := New(want, must(t, cfg, want)); len(again.Steps) > 0 || again.Summary() != "nothing changes" {
			t.Fatalf("plan %d again has steps:\n%s", i, again)
		}
		have = want
	}
	for verb := SetKeys; verb <= RemoveServer; verb++ {
		if seen[verb] == 0 {
			t.Errorf("no plan had a step such as %q", Step{Verb: verb})
		}
	}
}

// TestPhases: the steps of a plan, in their order, and no phase mixes actions that
// exclude each other.
func TestPhases(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	have := &State{}
	for range 200 {
		want := must(t, random(rng), have)
		p := New(have, want)
		var all Plan
		for _, steps := range p.Phases() {
			all.Steps = append(all.Steps, steps...)
			if first, last := steps[0].Verb, steps[len(steps)-1].Verb; first != last && (first < ReplaceTable || last > UnmarkVIP) {
				t.Errorf("%s and %s are one phase", steps[0], steps[len(steps)-1])
			}
		}
		if !all.Equal(p) {
			t.Fatalf("the phases are\n%sof\n%s", &all, p)
		}
		have = want
	}
}

// TestString: a plan in an operator's words.
func TestString(t *testing.T) {
	web := topo.Service{Name: "web", Buckets: 7, Choices: 1, VIP: topo.VIP{Addr: netip.MustParseAddr("2001:db8::1"), Port: 80}, Servers: []topo.Server{server(1, 1), server(2, 1)}}
	dns := topo.Service{Name: "dns", Buckets: 7, Choices: 1, VIP: topo.VIP{Addr: netip.MustParseAddr("2001:db8::2"), Port: 53, Protocol: topo.UDP}, Servers: web.Servers[:1]}
	have := must(t, &topo.LB{Services: []topo.Service{web, dns}}, &State{})
	web.Servers = []topo.Server{server(1, 1), server(3, 2)}
	inserted := topo.Service{Name: "mail", Buckets: 7, Choices: 1, Fragments: topo.HashFragments, VIP: topo.VIP{Addr: netip.MustParseAddr("2001:db8::3"), Port: 25}}
	p := New(have, must(t, &topo.LB{Node: topo.Node{Keys: []topo.SignalKey{{ID: 8}, {ID: 7}}}, Services: []topo.Service{web, inserted}}, have))
	want := `sign signals with the first of keys 8, 7 and accept all of them
add server s3 fd00:0:0:103::/64 weight 2 to web
derive the keys of 2 servers
remove service dns at udp [2001:db8::2]:53
replace the table of web: 7 lists, 5 change
make a table for mail: 7 lists
serve mail at [2001:db8::3]:25
leave fragments to 2001:db8::2 to the kernel
hash fragments to 2001:db8::3 as mail
wait for the packets on their way
free the old table of dns
remove server s2 fd00:0:0:102::/64 from web
remove server s1 fd00:0:0:101::/64 from dns
`
	if got := p.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := p.Summary(); got != "1 server added, 1 service removed, 1 table replaced, 1 table made, 2 servers removed, other keys" {
		t.Error(got)
	}
	web.Fragments = topo.HashFragments
	p = New(have, must(t, &topo.LB{Services: []topo.Service{web, dns}}, have))
	if got := p.Summary(); !strings.HasSuffix(got, ", other fragments") {
		t.Error(got)
	}
}

// TestFailed: after a plan that failed the next one sets all again that may be torn,
// and drops the servers that no service has.
func TestFailed(t *testing.T) {
	web := topo.Service{Name: "web", Buckets: 7, Choices: 1, VIP: topo.VIP{Addr: netip.MustParseAddr("2001:db8::1"), Port: 80}, Servers: []topo.Server{server(1, 1)}}
	cfg := &topo.LB{Services: []topo.Service{web}}
	state := must(t, cfg, &State{})
	held := Held(state.Services, []topo.Server{server(1, 1), {Locator: server(9, 1).Locator}})
	got := New(held, must(t, cfg, held)).String()
	want := `sign and check no signals
derive the keys of 1 servers
drop fragments to 2001:db8::1
wait for the packets on their way
remove server fd00:0:0:109::/64 of an earlier configuration
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
