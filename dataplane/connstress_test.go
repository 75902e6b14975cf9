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

// oneLine is an agent with a table of one line.
func oneLine(t *testing.T, change func(*ebpf.CollectionSpec) error) *agentRig {
	newAgentRig(t, hits{}, offering(huntPort)) // for its namespace
	cfg := agentConfig(1, offering(huntPort, byTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic = lineSlots - 2
	return loadAgentRig(t, hits{}, cfg, change)
}

func openingOf(flow int) packet {
	p := inward(huntPort, syn)
	p.src, p.seq = netip.AddrPortFrom(clientAddr, uint16(1+flow)), uint32(flow)*7919
	return p
}

// TestConnsOldest: a new flow takes a free slot, or that of the embryonic entry that was
// not seen for longest; an established flow keeps its slot.
func TestConnsOldest(t *testing.T) {
	const begin = 15<<36 - 990*time.Millisecond // dates wrap in between
	r := oneLine(t, inVirtualTime)
	conns := connsOf(t, r.Agent)
	stay := func(step string, flows ...int) {
		t.Helper()
		for _, flow := range flows {
			if !conns.get(t, openingOf(flow).flow()).known {
				t.Errorf("%s: embryonic flow %d has no entry", step, flow)
			}
		}
		if n, _ := conns.count(t); n != len(flows) {
			t.Errorf("%s: %d embryonic, want %d", step, n, len(flows))
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
		t.Errorf("the date of an embryonic entry counts in a dump (%v)", err)
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
	r.send(t, s.frame()).is(t, "no slot", xdpPass, delivered(openingOf(10)), "table_full")
	for flow := 1; flow <= 9; flow++ {
		if _, known := r.settled(t, openingOf(flow).flow()); known == (flow == 5) {
			t.Errorf("flow %d is known: %v", flow, known)
		}
	}
}

// TestConnsCrowd: CPUs that take slots of a few lines, establish, end and sweep flows at once
// lose no established flow and never write one slot together. In the end the lines count no
// fewer displaced entries than there are, and hardly more: a CPU that loses every try leaves
// the count. (In real time: flows of one tick compete for the same slot.)
func TestConnsCrowd(t *testing.T) {
	const crowd, rounds, lines = 4, 40_000, 4
	newAgentRig(t, hits{}, offering(huntPort)) // for its namespace
	cfg := agentConfig(1, offering(huntPort, byTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic, cfg.Flows.Linger = lines*lineSlots-2, 1
	r := loadAgentRig(t, hits{}, cfg, func(spec *ebpf.CollectionSpec) error { return spec.Variables["stalls"].Set(true) })
	var wg, sweeper sync.WaitGroup
	held := make([][]packet, crowd) // established, by each of the crowd
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
	displaced := make([]int, lines)
	for at := range uint32(lines) {
		line := conns.line(t, at)
		for k, slot := range line.Slot {
			if line.Fingerprint[k] <= noDigest {
				continue
			}
			p := openingOf(int(portBits(slot.T.ClientPortBe)) - 1)
			in, fingerprint := conns.lines(p.flow())
			alternate := line.Fingerprint[k]&connInAlternate != 0
			if alternate {
				displaced[in[0]]++
				in[0] = in[1]
			}
			if in[0] != at || line.Fingerprint[k]&connDigest != fingerprint ||
				slot.C.Generation != policy.Generation(p.seq) && slot.C.Generation != policy.Generation(p.seq+begunAgain) {
				t.Errorf("line %d, slot %d has fingerprint %x and %+v; want lines %v, fingerprint %x, generation %d or %d", at, k, line.Fingerprint[k], slot, in, fingerprint, policy.Generation(p.seq), policy.Generation(p.seq+begunAgain))
			}
		}
	}
	for at, n := range displaced {
		counted := int(conns.line(t, uint32(at)).Fingerprint[0] & connDisplaced / connOneDisplaced)
		if counted < min(n, connDisplaced/connOneDisplaced) || counted > n+3 {
			t.Errorf("line %d counts %d of %d displaced entries", at, counted, n)
		}
	}
	all := slices.Concat(held...)
	for _, p := range all {
		if _, known := r.settled(t, p.flow()); !known {
			t.Errorf("flow %v is lost", p.src)
		}
	}
	if swept, err := r.sweepAt(monotonic() + time.Second); err != nil || int(swept.Kept) != len(all) {
		t.Errorf("%d flows are established, %d of them by their clients; %v", swept.Kept, len(all), err)
	}
}

// TestConnsFill: the table holds the configured number of established flows, but for a few,
// also while flows come and go; no established flow gives way.
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
	if embryonic, established := conns.count(t); embryonic != 0 || established != flows-none || none > flows*3/1000 {
		t.Errorf("%d of %d flows found no slot: %d established, %d embryonic", none, flows, established, embryonic)
	}
	filling := none
	for flow := range flows {
		conns.put(t, openingOf(flow).flow(), connEntry{})
		begin(flows + flow)
	}
	if churning := none - filling; churning > flows*3/1000 {
		t.Errorf("%d of %d flows found no slot while others ended", churning, flows)
	}
}

// TestConnsDisplaced: after any sequence of packets and sweeps the lines count their
// displaced entries.
func TestConnsDisplaced(t *testing.T) {
	const lines, steps = 3, 3000
	newAgentRig(t, hits{}, offering(huntPort)) // for its namespace
	cfg := agentConfig(1, offering(huntPort, byTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic = lines*lineSlots - 2
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
		displaced := [lines]int{}
		for at := range uint32(lines) {
			line := conns.line(t, at)
			for k, fingerprint := range line.Fingerprint {
				if fingerprint > noDigest && fingerprint&connInAlternate != 0 {
					in, _ := conns.lines(openingOf(int(portBits(line.Slot[k].T.ClientPortBe)) - 1).flow())
					displaced[in[0]]++
				}
			}
		}
		for at, n := range displaced {
			most = max(most, n)
			if counted := int(conns.line(t, uint32(at)).Fingerprint[0] & connDisplaced / connOneDisplaced); counted != n {
				t.Fatalf("step %d: line %d counts %d of %d displaced entries", step, at, counted, n)
			}
		}
	}
	if most < 3 {
		t.Errorf("there were at most %d displaced entries", most)
	}
}

// TestConnsCollide: a flow is not mistaken for another flow of the same digest.
func TestConnsCollide(t *testing.T) {
	r := oneLine(t, inVirtualTime)
	p, other := openingOf(1), openingOf(2)
	r.accept(t, p)
	r.acknowledge(t, p)
	conns := connsOf(t, r.Agent)
	at, k, _ := conns.find(t, p.flow())
	line := conns.line(t, at)
	_, fingerprint := conns.lines(other.flow())
	line.Fingerprint[k] = line.Fingerprint[k]&noDigest | fingerprint
	conns.write(t, at, &line)
	other.flags, other.seq = ack, other.seq+1
	s := to(other, policy.Generation(p.seq), 0xa5)
	r.send(t, s.frame()).is(t, "its digest, another flow", xdpTX, s.returned(), "give_back_not_mine")
}

// begunAgain is how much higher the sequence number of a flow's second connection is.
const begunAgain = 1_000_000_000

// churn begins flows and holds five of them; it ends the oldest and begins it again at once.
// It returns the flows that it holds.
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
			return // displaced, or there was no slot
		}
		if c, established := r.settled(t, p.flow()); established && c.Generation == policy.Generation(p.seq) { // else they did meanwhile
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
