package races_test

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// oneLine is an agent with a table of one line.
func oneLine(t *testing.T, change func(*ebpf.CollectionSpec) error) *rig.Agent {
	rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort)) // for its namespace
	cfg := rig.AgentConfig(1, rig.Offering(rig.HuntPort, rig.ByTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic = objects.LineSlots - 2
	return rig.LoadAgent(t, rig.Hits{}, cfg, change)
}

func openingOf(flow int) rig.Packet {
	p := rig.Inward(rig.HuntPort, wire.SYN)
	p.Src, p.Seq = netip.AddrPortFrom(rig.ClientAddr, uint16(1+flow)), uint32(flow)*7919
	return p
}

// TestConnsOldest: a new flow takes a free slot, or that of the embryonic entry that was
// not seen for longest; an established flow keeps its slot.
func TestConnsOldest(t *testing.T) {
	const begin = 15<<36 - 990*time.Millisecond // dates wrap in between
	r := oneLine(t, rig.InVirtualTime)
	conns := rig.ConnsOf(t, r.Agent)
	stay := func(step string, flows ...int) {
		t.Helper()
		for _, flow := range flows {
			if !conns.Get(t, openingOf(flow).Flow()).Known {
				t.Errorf("%s: embryonic flow %d has no entry", step, flow)
			}
		}
		if n, _ := conns.Count(t); n != len(flows) {
			t.Errorf("%s: %d embryonic, want %d", step, n, len(flows))
		}
	}
	order := []int{3, 0, 5, 1, 7, 2, 6, 4}
	for i, flow := range order {
		r.At(t, begin+time.Duration(i)*10*time.Millisecond)
		r.Accept(t, openingOf(flow))
	}
	stay("full", order...)
	dumped, err := objects.Conns(conns.M)
	if err != nil {
		t.Fatal(err)
	}
	r.At(t, begin+time.Second)
	again := rig.To(openingOf(3), wire.Generation(openingOf(3).Seq), wire.ConnectForce)
	r.Send(t, again.Frame()).Is(t, "again", rig.XDPPass, rig.Delivered(openingOf(3)), "accept_repeated")
	if later, err := objects.Conns(conns.M); err != nil || !slices.EqualFunc(later, dumped, bytes.Equal) {
		t.Errorf("the date of an embryonic entry counts in a dump (%v)", err)
	}
	r.Accept(t, openingOf(8))
	stay("a ninth", 3, 5, 1, 7, 2, 6, 4, 8)
	r.Acknowledge(t, openingOf(7))
	stay("acknowledged", 3, 5, 1, 2, 6, 4, 8)
	r.Accept(t, openingOf(9))
	stay("the oldest again", 3, 1, 2, 6, 4, 8, 9)
	for _, flow := range []int{3, 1, 2, 6, 4, 8, 9} {
		r.Acknowledge(t, openingOf(flow))
	}
	stay("all acknowledged")
	s := rig.To(openingOf(10), wire.Generation(openingOf(10).Seq), wire.ConnectForce)
	r.Send(t, s.Frame()).Is(t, "no slot", rig.XDPPass, rig.Delivered(openingOf(10)), "table_full")
	for flow := 1; flow <= 9; flow++ {
		if _, known := r.Settled(t, openingOf(flow).Flow()); known == (flow == 5) {
			t.Errorf("flow %d is known: %v", flow, known)
		}
	}
}

// TestConnsCrowd: CPUs that take slots of a few lines, establish, end and sweep flows at once
// lose no established flow and never write one slot together: its next packet and a repeated
// offer find it. In the end each slot has its hint, and the lines count no fewer displaced entries
// than there are, and hardly more: a CPU that loses every try leaves the count. (In real time: flows of one tick compete for the same slot.)
func TestConnsCrowd(t *testing.T) {
	const crowd, rounds, lines = 4, 40_000, 4
	rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort)) // for its namespace
	cfg := rig.AgentConfig(1, rig.Offering(rig.HuntPort, rig.ByTable, func(o *topo.Offering) { o.Threshold = 0 }))
	cfg.Flows.Embryonic, cfg.Flows.Linger = lines*objects.LineSlots-2, 1
	r := rig.LoadAgent(t, rig.Hits{}, cfg, func(spec *ebpf.CollectionSpec) error { return spec.Variables["stalls"].Set(true) })
	held := make([][]rig.Packet, crowd) // established, by each of the crowd
	besideSweeps(t, r, 1, crowd, func(i int) { held[i] = churn(r, t, i, rounds) })
	if t.Failed() {
		return
	}
	conns := rig.ConnsOf(t, r.Agent)
	conns.Hinted(t)
	displaced := make([]int, lines)
	for at := range uint32(lines) {
		line := conns.Line(t, at)
		for k, slot := range line.Slot {
			if line.Fingerprint[k] <= objects.NoDigest {
				continue
			}
			p := openingOf(int(objects.PortBits(slot.ClientPortBe)) - 1)
			in, fingerprint := conns.Lines(p.Flow())
			alternate := line.Fingerprint[k]&rig.ConnInAlternate != 0
			if alternate {
				displaced[in[0]]++
				in[0] = in[1]
			}
			if in[0] != at || line.Fingerprint[k]&rig.ConnDigest != fingerprint ||
				slot.Generation != wire.Generation(p.Seq) && slot.Generation != wire.Generation(p.Seq+begunAgain) {
				t.Errorf("line %d, slot %d has fingerprint %x and %+v; want lines %v, fingerprint %x, generation %d or %d", at, k, line.Fingerprint[k], slot, in, fingerprint, wire.Generation(p.Seq), wire.Generation(p.Seq+begunAgain))
			}
		}
	}
	for at, n := range displaced {
		counted := int(conns.Line(t, uint32(at)).Fingerprint[0] & rig.ConnDisplaced / rig.ConnOneDisplaced)
		if counted < min(n, rig.ConnDisplaced/rig.ConnOneDisplaced) || counted > n+3 {
			t.Errorf("line %d counts %d of %d displaced entries", at, counted, n)
		}
	}
	all := slices.Concat(held...)
	for _, p := range all {
		if _, known := r.Settled(t, p.Flow()); !known {
			t.Errorf("flow %v is lost", p.Src)
		}
	}
	if swept, err := r.SweepAt(rig.Uptime() + time.Second); err != nil || int(swept.Kept) != len(all) {
		t.Errorf("%d flows are established, %d of them by their clients; %v", swept.Kept, len(all), err)
	}
}

// besideSweeps runs a crowd while others sweep the table all the time.
func besideSweeps(t *testing.T, r *rig.Agent, sweepers, crowd int, run func(i int)) {
	var wg, sweeping sync.WaitGroup
	for i := range crowd {
		wg.Go(func() { run(i) })
	}
	var done atomic.Bool
	for range sweepers {
		sweeping.Go(func() {
			for !done.Load() {
				if _, err := r.Sweep(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	done.Store(true)
	sweeping.Wait()
}

// TestConnsBeginAgain: a flow that ends and begins again at once, in the slot of its entry that is
// about to be swept, is found by each of its packets.
func TestConnsBeginAgain(t *testing.T) {
	const crowd, rounds, lines = 4, 30_000, 4
	rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort)) // for its namespace
	cfg := rig.AgentConfig(1, rig.Offering(rig.HuntPort, rig.ByTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic, cfg.Flows.Linger = lines*objects.LineSlots-2, 1
	r := rig.LoadAgent(t, rig.Hits{}, cfg, func(spec *ebpf.CollectionSpec) error { return spec.Variables["stalls"].Set(true) })
	besideSweeps(t, r, 2, crowd, func(i int) {
		p := openingOf(i)
		for round := range rounds {
			p.Seq = uint32(round) * 7919
			taken := runThrough(t, r, p, wire.SYN, wire.ConnectForce)
			for range 1 + round%4 {
				taken = taken && runThrough(t, r, p, wire.ACK, wire.AckStickiness)
			}
			if !taken || !runThrough(t, r, p, wire.RST, wire.AckStickiness) {
				t.Errorf("flow %d lost a packet in round %d", i, round)
				return
			}
			if round%2000 == 0 {
				rig.Eventually(t, "the removal of the flow's entry", func() bool { _, known := r.Conn(t, p.Flow()); return !known })
			}
		}
	})
}

// TestConnsFill: the table holds the configured number of established flows, but for a few,
// also while flows come and go; no established flow gives way.
func TestConnsFill(t *testing.T) {
	const flows = 4096
	rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort)) // for its namespace
	cfg := rig.AgentConfig(flows, rig.Offering(rig.HuntPort, rig.ByTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic = 64
	r := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
	conns := rig.ConnsOf(t, r.Agent)
	none := 0
	begin := func(flow int) {
		p := openingOf(flow)
		r.Run(t, rig.To(p, wire.Generation(p.Seq), wire.ConnectForce).Frame())
		p.Flags, p.Seq = wire.ACK, p.Seq+1
		if r.Run(t, rig.To(p, wire.Generation(p.Seq-1), wire.AckStickiness).Frame()).Action != rig.XDPPass {
			none++
		}
	}
	for flow := range flows {
		begin(flow)
	}
	if embryonic, established := conns.Count(t); embryonic != 0 || established != flows-none || none > flows*3/1000 {
		t.Errorf("%d of %d flows found no slot: %d established, %d embryonic", none, flows, established, embryonic)
	}
	filling := none
	for flow := range flows {
		conns.Put(t, openingOf(flow).Flow(), rig.ConnEntry{})
		begin(flows + flow)
	}
	if churning := none - filling; churning > flows*3/1000 {
		t.Errorf("%d of %d flows found no slot while others ended", churning, flows)
	}
}

// TestConnsDisplaced: after any sequence of packets and sweeps the lines count their
// displaced entries, and each slot has its hint.
func TestConnsDisplaced(t *testing.T) {
	const lines, steps = 3, 10_000
	rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort)) // for its namespace
	cfg := rig.AgentConfig(1, rig.Offering(rig.HuntPort, rig.ByTable, func(o *topo.Offering) { o.Acceptance = topo.Always }))
	cfg.Flows.Embryonic = lines*objects.LineSlots - 2
	r := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
	conns, now, most := rig.ConnsOf(t, r.Agent), rig.Start, 0
	random := rand.New(rand.NewPCG(1, 2))
	for step := range steps {
		p := openingOf(random.IntN(40))
		generation := wire.Generation(p.Seq)
		switch what := random.IntN(16); {
		case what < 8:
			r.Run(t, rig.To(p, generation, wire.ConnectForce).Frame())
		case what < 12:
			p.Flags, p.Seq = wire.ACK, p.Seq+1
			r.Run(t, rig.To(p, generation, wire.AckStickiness).Frame())
		case what < 14:
			p.Flags, p.Seq = wire.RST, p.Seq+1
			r.Run(t, rig.To(p, generation, []wire.Function{wire.AckStickiness, wire.Reject}[what-12]).Frame())
		case what == 14:
			now += time.Duration(random.IntN(20)) * time.Second
			r.At(t, now)
		default:
			if _, err := r.SweepAt(now); err != nil {
				t.Fatal(err)
			}
		}
		conns.Hinted(t)
		displaced := [lines]int{}
		for at := range uint32(lines) {
			line := conns.Line(t, at)
			for k, fingerprint := range line.Fingerprint {
				if fingerprint > objects.NoDigest && fingerprint&rig.ConnInAlternate != 0 {
					in, _ := conns.Lines(openingOf(int(objects.PortBits(line.Slot[k].ClientPortBe)) - 1).Flow())
					displaced[in[0]]++
				}
			}
		}
		for at, n := range displaced {
			most = max(most, n)
			if counted := int(conns.Line(t, uint32(at)).Fingerprint[0] & rig.ConnDisplaced / rig.ConnOneDisplaced); counted != n {
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
	r := oneLine(t, rig.InVirtualTime)
	p, other := openingOf(1), openingOf(2)
	r.Accept(t, p)
	r.Acknowledge(t, p)
	conns := rig.ConnsOf(t, r.Agent)
	at, k, _ := conns.Find(t, p.Flow())
	line := conns.Line(t, at)
	_, fingerprint := conns.Lines(other.Flow())
	line.Fingerprint[k] = line.Fingerprint[k]&objects.NoDigest | fingerprint
	conns.Write(t, at, &line)
	other.Flags, other.Seq = wire.ACK, other.Seq+1
	s := rig.To(other, wire.Generation(p.Seq), wire.AckStickiness)
	r.Send(t, s.Frame()).Is(t, "its digest, another flow", rig.XDPTX, s.Returned(), "give_back_not_mine")
}

// begunAgain is how much higher the sequence number of a flow's second connection is.
const begunAgain = 1_000_000_000

// runThrough runs the program with a packet of an opening's connection, and is true if its stack gets that.
func runThrough(t *testing.T, r *rig.Agent, p rig.Packet, flags byte, functions ...wire.Function) bool {
	generation := wire.Generation(p.Seq)
	if p.Flags = flags; flags != wire.SYN {
		p.Seq++
	}
	o := ebpf.RunOptions{Data: rig.To(p, generation, functions...).Frame(), DataOut: make([]byte, 512)}
	action, err := r.Objects().AgentIn.Run(&o)
	if err != nil {
		t.Error(err)
	}
	return action == rig.XDPPass
}

// churn begins flows and holds five of them; it ends the oldest and begins it again at once.
// It returns the flows that it holds.
func churn(r *rig.Agent, t *testing.T, who, rounds int) (held []rig.Packet) {
	run := func(p rig.Packet, flags byte, functions ...wire.Function) bool {
		return runThrough(t, r, p, flags, functions...)
	}
	begin := func(p rig.Packet) {
		run(p, wire.SYN, wire.ConnectForce)
		if !run(p, wire.ACK, wire.AckStickiness) {
			return // displaced, or there was no slot
		}
		if c, established := r.Settled(t, p.Flow()); established && c.Generation == wire.Generation(p.Seq) { // else they did meanwhile
			held = append(held, p)
		}
	}
	for round := range rounds {
		run(openingOf(60_000+who*1000+round%1000), wire.SYN, wire.ConnectForce) // and nothing follows
		begin(openingOf(who*15_000 + round%15_000))
		for _, p := range held {
			if !run(p, wire.ACK, wire.AckStickiness) {
				t.Errorf("flow %v of %d in round %d is lost", p.Src, who, round)
				return held
			}
			if !run(p, wire.SYN, wire.ConnectAvail, wire.ConnectForce) { // a new flow is passed on
				t.Errorf("flow %v of %d in round %d is new to its repeated offer", p.Src, who, round)
				return held
			}
		}
		if len(held) > 5 {
			last := held[0]
			if !run(last, wire.RST, wire.AckStickiness) {
				t.Errorf("flow %v of %d in round %d is lost to its RST", last.Src, who, round)
			}
			held = held[1:]
			if last.Seq < begunAgain {
				last.Seq += begunAgain
				begin(last)
			}
		}
	}
	return held
}
