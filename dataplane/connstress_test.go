package dataplane

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/policy"
	"proffer/topo"
)

// oneSet is an agent that has room for eight flows.
func oneSet(t *testing.T, change func(*ebpf.CollectionSpec) error) *agentRig {
	newAgentRig(t, hits{}, offering(huntPort)) // for its namespace
	cfg := agentConfig(1, offering(huntPort, byTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic = setPlaces - 2
	return loadAgentRig(t, hits{}, cfg, change)
}

func openingOf(flow int) packet {
	p := inward(huntPort, syn)
	p.src, p.seq = netip.AddrPortFrom(clientAddr, uint16(1+flow)), uint32(flow)*7919
	return p
}

// TestConnsOldest: a newcomer takes a free place, or that of the opening that was
// not seen for longest; that of a flow whose client is there is never taken.
func TestConnsOldest(t *testing.T) {
	const begin = 15<<36 - 990*time.Millisecond // dates begin anew in between: nobody's is one of the youngest
	r := oneSet(t, inVirtualTime)
	conns := connsOf(t, r.Agent)
	stay := func(step string, flows ...int) {
		t.Helper()
		for _, flow := range flows {
			if !conns.get(t, openingOf(flow).flow()).known {
				t.Errorf("%s: opening %d is forgotten", step, flow)
			}
		}
		if n, _ := conns.count(t); n != len(flows) {
			t.Errorf("%s: %d openings, want %d", step, n, len(flows))
		}
	}
	order := []int{3, 0, 5, 1, 7, 2, 6, 4}
	for i, flow := range order {
		r.at(t, begin+time.Duration(i)*10*time.Millisecond)
		r.accept(t, openingOf(flow))
	}
	stay("full", order...)
	dumped, err := dumpConns(conns.m)
	if err != nil {
		t.Fatal(err)
	}
	r.at(t, begin+time.Second)
	again := to(openingOf(3), policy.Generation(openingOf(3).seq), 0xcf)
	r.send(t, again.frame()).is(t, "again", xdpPass, delivered(openingOf(3)), "accept_repeated")
	if later, err := dumpConns(conns.m); err != nil || !slices.EqualFunc(later, dumped, bytes.Equal) {
		t.Errorf("when an opening was last seen counts in a dump (%v)", err)
	}
	r.accept(t, openingOf(8))
	stay("a ninth", 3, 5, 1, 7, 2, 6, 4, 8)
	r.acknowledge(t, openingOf(7))
	stay("acknowledged", 3, 5, 1, 2, 6, 4, 8)
	r.accept(t, openingOf(9))
	stay("the oldest again", 3, 1, 2, 6, 4, 8, 9)
	for _, flow := range []int{3, 1, 2, 6, 4, 8, 9} {
		r.acknowledge(t, openingOf(flow))
	}
	stay("all acknowledged")
	s := to(openingOf(10), policy.Generation(openingOf(10).seq), 0xcf)
	r.send(t, s.frame()).is(t, "no place", xdpPass, delivered(openingOf(10)), "table_full")
	for flow := 1; flow <= 9; flow++ {
		if _, known := r.settled(t, openingOf(flow).flow()); known == (flow == 5) {
			t.Errorf("flow %d is known: %v", flow, known)
		}
	}
}

// TestConnsCrowd: CPUs that take places of a few sets at once, prove, end and sweep flows,
// never lose one that is proved, nor write into one place together; in the end the sets
// count no fewer strays than there are, and hardly more: who finds a count changed again
// and again leaves it. (In real time: who comes in one tick takes the same place.)
func TestConnsCrowd(t *testing.T) {
	const crowd, rounds, sets = 4, 40_000, 4
	newAgentRig(t, hits{}, offering(huntPort)) // for its namespace
	cfg := agentConfig(1, offering(huntPort, byTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic, cfg.Flows.Linger = sets*setPlaces-2, 1
	r := loadAgentRig(t, hits{}, cfg, func(spec *ebpf.CollectionSpec) error { return spec.Variables["stalls"].Set(true) })
	var wg, sweeper sync.WaitGroup
	held := make([][]packet, crowd) // proved, by each of the crowd
	for i := range crowd {
		wg.Go(func() { held[i] = r.churn(t, i, rounds) })
	}
	done := make(chan struct{})
	sweeper.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := r.Sweep(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	wg.Wait()
	close(done)
	sweeper.Wait()
	if t.Failed() {
		return
	}
	conns := connsOf(t, r.Agent)
	strays := make([]int, sets)
	for at := range uint32(sets) {
		set := conns.set(t, at)
		for k, place := range set.Place {
			if set.Mark[k] <= noDigest {
				continue
			}
			p := openingOf(int(portBits(place.T.ClientPortBe)) - 1)
			in, mark := conns.sets(p.flow())
			away := set.Mark[k]&isAway != 0
			if away {
				strays[in[0]]++
				in[0] = in[1]
			}
			if in[0] != at || set.Mark[k]&digestOf != mark ||
				place.C.Generation != policy.Generation(p.seq) && place.C.Generation != policy.Generation(p.seq+begunAgain) {
				t.Errorf("set %d, place %d has mark %x and %+v; want sets %v, mark %x, generation %d or %d", at, k, set.Mark[k], place, in, mark, policy.Generation(p.seq), policy.Generation(p.seq+begunAgain))
			}
		}
	}
	for at, n := range strays {
		counted := int(conns.set(t, uint32(at)).Mark[0] & manyStrays / oneStray)
		if counted < min(n, manyStrays/oneStray) || counted > n+3 {
			t.Errorf("set %d counts %d strays of %d", at, counted, n)
		}
	}
	all := slices.Concat(held...)
	for _, p := range all {
		if _, known := r.settled(t, p.flow()); !known {
			t.Errorf("flow %v is lost", p.src)
		}
	}
	if swept, err := r.sweepAt(monotonic() + time.Second); err != nil || int(swept.Kept) != len(all) {
		t.Errorf("%d flows are proved, %d of them by their clients; %v", swept.Kept, len(all), err)
	}
}

// TestConnsFill: as many established flows as the configuration says find a place, but for
// a few, also while they come and go; and nothing else makes room for them.
func TestConnsFill(t *testing.T) {
	const flows = 4096
	newAgentRig(t, hits{}, offering(huntPort)) // for its namespace
	cfg := agentConfig(flows, offering(huntPort, byTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic = 64
	r := loadAgentRig(t, hits{}, cfg, inVirtualTime)
	conns := connsOf(t, r.Agent)
	none := 0
	begin := func(flow int) {
		p := openingOf(flow)
		r.run(t, to(p, policy.Generation(p.seq), 0xcf).frame())
		p.flags, p.seq = ack, p.seq+1
		if r.run(t, to(p, policy.Generation(p.seq-1), 0xa5).frame()).action != xdpPass {
			none++
		}
	}
	for flow := range flows {
		begin(flow)
	}
	if openings, proved := conns.count(t); openings != 0 || proved != flows-none || none > flows*3/1000 {
		t.Errorf("%d of %d flows found no place: %d proved, %d openings", none, flows, proved, openings)
	}
	filling := none
	for flow := range flows {
		conns.put(t, openingOf(flow).flow(), connEntry{})
		begin(flows + flow)
	}
	if churning := none - filling; churning > flows*3/1000 {
		t.Errorf("%d of %d flows found no place while others went", churning, flows)
	}
}

// TestConnsStrays: whatever comes and goes, and by which way, the sets count their strays.
func TestConnsStrays(t *testing.T) {
	const sets, steps = 3, 3000
	newAgentRig(t, hits{}, offering(huntPort)) // for its namespace
	cfg := agentConfig(1, offering(huntPort, byTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic = sets*setPlaces - 2
	r := loadAgentRig(t, hits{}, cfg, inVirtualTime)
	conns, now, most := connsOf(t, r.Agent), start, 0
	random := rand.New(rand.NewPCG(1, 2))
	for step := range steps {
		p := openingOf(random.IntN(40))
		generation := policy.Generation(p.seq)
		switch what := random.IntN(16); {
		case what < 8:
			r.run(t, to(p, generation, 0xcf).frame())
		case what < 12:
			p.flags, p.seq = ack, p.seq+1
			r.run(t, to(p, generation, 0xa5).frame())
		case what < 14:
			p.flags, p.seq = rst, p.seq+1
			r.run(t, to(p, generation, []byte{0xa5, reject}[what-12]).frame())
		case what == 14:
			now += time.Duration(random.IntN(20)) * time.Second
			r.at(t, now)
		default:
			if _, err := r.sweepAt(now); err != nil {
				t.Fatal(err)
			}
		}
		strays := [sets]int{}
		for at := range uint32(sets) {
			set := conns.set(t, at)
			for k, mark := range set.Mark {
				if mark > noDigest && mark&isAway != 0 {
					in, _ := conns.sets(openingOf(int(portBits(set.Place[k].T.ClientPortBe)) - 1).flow())
					strays[in[0]]++
				}
			}
		}
		for at, n := range strays {
			most = max(most, n)
			if counted := int(conns.set(t, uint32(at)).Mark[0] & manyStrays / oneStray); counted != n {
				t.Fatalf("step %d: set %d counts %d strays of %d", step, at, counted, n)
			}
		}
	}
	if most < 3 {
		t.Errorf("there were at most %d strays", most)
	}
}

// TestConnsCollide: a flow is not taken for another one of the same digest.
func TestConnsCollide(t *testing.T) {
	r := oneSet(t, inVirtualTime)
	p, other := openingOf(1), openingOf(2)
	r.accept(t, p)
	r.acknowledge(t, p)
	conns := connsOf(t, r.Agent)
	at, k, _ := conns.find(t, p.flow())
	set := conns.set(t, at)
	_, mark := conns.sets(other.flow())
	set.Mark[k] = set.Mark[k]&noDigest | mark
	conns.write(t, at, &set)
	other.flags, other.seq = ack, other.seq+1
	s := to(other, policy.Generation(p.seq), 0xa5)
	r.send(t, s.frame()).is(t, "its digest, another flow", xdpTX, s.returned(), "not_mine")
}

// begunAgain is how much higher the sequence number of a flow's second connection is.
const begunAgain = 1_000_000_000

// churn makes flows and holds five of them; it ends the oldest and begins it anew at once.
// It returns those it holds.
func (r *agentRig) churn(t *testing.T, who, rounds int) (held []packet) {
	run := func(p packet, flags byte, function byte) bool {
		generation := policy.Generation(p.seq)
		if p.flags = flags; flags != syn {
			p.seq++
		}
		o := ebpf.RunOptions{Data: to(p, generation, function).frame(), DataOut: make([]byte, 512)}
		action, err := r.objs.AgentIn.Run(&o)
		if err != nil {
			t.Error(err)
		}
		return action == xdpPass
	}
	begin := func(p packet) {
		run(p, syn, 0xcf)
		if !run(p, ack, 0xa5) {
			return // others displaced it, or there was no place
		}
		if c, proved := r.settled(t, p.flow()); proved && c.Generation == policy.Generation(p.seq) { // else they did meanwhile
			held = append(held, p)
		}
	}
	for round := range rounds {
		run(openingOf(60_000+who*1000+round%1000), syn, 0xcf) // and nothing follows
		begin(openingOf(who*15_000 + round%15_000))
		for _, p := range held {
			if !run(p, ack, 0xa5) {
				t.Errorf("flow %v of %d in round %d is lost", p.src, who, round)
				return held
			}
		}
		if len(held) > 5 {
			last := held[0]
			run(last, rst, 0xa5)
			held = held[1:]
			if last.seq < begunAgain {
				last.seq += begunAgain
				begin(last)
			}
		}
	}
	return held
}
