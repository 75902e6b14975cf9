package agent_test

import (
	"math"
	"math/rand/v2"
	"net/netip"
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

// farm of connections: connection i of one client each.
func clientOf(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 12: byte(i >> 24), 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}), 4000)
}

// conversation is a connection of which a test knows whether a request is in progress.
type conversation struct {
	client netip.AddrPort
	port   uint16
	seq    uint32
	asking bool
}

func (c *conversation) inward(flags byte, payload string) rig.Packet {
	p := rig.Inward(c.port, flags)
	p.Src, p.Seq, p.Payload = c.client, c.seq, []byte(payload)
	return p
}

// open makes the agent take the connection, and establishes it.
func (c *conversation) open(t testing.TB, r *rig.Agent) {
	c.seq = rig.ClientISN
	syn := c.inward(wire.SYN, "")
	c.seq++
	for _, frame := range [][]byte{
		rig.To(syn, wire.Generation(syn.Seq), wire.ConnectForce).Frame(),
		rig.To(c.inward(wire.ACK, ""), wire.Generation(syn.Seq), wire.AckStickiness).Frame(),
	} {
		if out := r.Run(t, frame); out.Action != rig.XDPPass {
			t.Fatalf("%v opens: action %d", c.client, out.Action)
		}
	}
}

// turn is the next half of an exchange: a request, or its answer.
func (c *conversation) turn(t testing.TB, r *rig.Agent) {
	if c.asking {
		p := rig.Outward(c.port, wire.ACK|wire.PSH)
		p.Dst, p.Ack, p.Payload = c.client, c.seq, []byte("200")
		r.Out.Run(t, p.Frame())
	} else {
		r.Run(t, rig.To(c.inward(wire.ACK|wire.PSH, "GET"), wire.Generation(rig.ClientISN), wire.AckStickiness).Frame())
		c.seq += 3
	}
	c.asking = !c.asking
}

func openAll(t testing.TB, r *rig.Agent, n int) []conversation {
	all := make([]conversation, n)
	for i := range all {
		all[i] = conversation{client: clientOf(i), port: rig.HuntPort}
		all[i].open(t, r)
	}
	return all
}

func asking(all []conversation) (n uint32) {
	for i := range all {
		if all[i].asking {
			n++
		}
	}
	return n
}

// traffic sends turns of the connections by two goroutines until the returned stop is
// called, to the agent that `to` names.
func traffic(t testing.TB, all []conversation, to func() *rig.Agent) (stop func()) {
	var wg sync.WaitGroup
	var done atomic.Bool
	for k := range 2 {
		rng, half := rand.New(rand.NewPCG(5, uint64(k))), all[k*len(all)/2:(k+1)*len(all)/2]
		wg.Go(func() {
			for !done.Load() {
				half[rng.IntN(len(half))].turn(t, to())
			}
		})
	}
	return func() { done.Store(true); wg.Wait() }
}

// manyFlows is an agent with room for n flows that accepts all. A flow finds both its lines full
// once in ten thousand times at n flows, and never at a quarter of them.
func manyFlows(t *testing.T, n int, change func(*ebpf.CollectionSpec) error) *rig.Agent {
	rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort)) // for its namespace
	always := func(o *topo.Offering) { o.Acceptance = topo.Always }
	return rig.LoadAgent(t, rig.Hits{}, rig.AgentConfig(n, rig.Offering(rig.HuntPort, rig.ByTable, always)), change)
}

func recount(t testing.TB, r *rig.Agent) (wrong int) {
	t.Helper()
	wrong, err := r.Recount()
	if err != nil {
		t.Fatal(err)
	}
	return wrong
}

// testRecount: a count that is below 0 is no load, two recounts set any count right, and a
// right count does not change.
func testRecount(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, rig.ByTable))
	all := openAll(t, r, 3)
	all[1].turn(t, r)
	if n := recount(t, r); n != 0 || r.Asking(t) != 1 {
		t.Errorf("%d wrong counts of 0, %d requests in progress of 1", n, r.Asking(t))
	}
	for _, wrong := range [][2]uint32{{math.MaxUint32, 0}, {0, math.MaxUint32}, {7, 9}, {math.MaxUint32 - 5, 3}} {
		r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking = wrong })
		if int32(wrong[0]+wrong[1]) < 0 {
			if n := r.Asking(t); n != 0 {
				t.Errorf("%d: %d requests in progress", wrong, n)
			}
			p := rig.Inward(rig.HuntPort, wire.SYN)
			r.Send(t, rig.To(p, 1, wire.ConnectAvail, wire.ConnectForce).Frame()).Is(t, "idle by a count below 0", rig.XDPPass, nil, "accept_avail")
			r.Send(t, rig.To(rig.Inward(rig.HuntPort, wire.RST), wire.Generation(p.Seq), wire.Reject).Frame()).Is(t, "rejected", rig.XDPPass, nil, "rejected")
		}
		before := r.Counts(t)
		recount(t, r)
		recount(t, r)
		for i, n := range r.Counts(t) {
			if n != before[i] {
				seen[r.Names[i]] = true
			}
		}
		if n := r.Asking(t); n != 1 {
			t.Errorf("%d: %d requests in progress after two recounts, want 1", wrong, n)
		}
	}
	all[1].turn(t, r)
	if n := r.Asking(t); n != 0 {
		t.Errorf("%d requests in progress after the answer", n)
	}
}

// testRecountOfBoth: an entry that has its request in both counts, as two CPUs that begin it at once
// may leave it, counts once after a recount.
func testRecountOfBoth(t *testing.T, seen rig.Hits) {
	r := rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, rig.ByTable))
	all := openAll(t, r, 1)
	all[0].turn(t, r)
	conns, flow := rig.ConnsOf(t, r.Agent), all[0].inward(wire.ACK, "").Flow()
	const both = 1 | 128 // CONN_ASKING, CONN_ASKING_ODD
	e := conns.Get(t, flow)
	e.Conn.Flags |= both
	conns.Put(t, flow, e)
	r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking = [2]uint32{1, 1} })
	recount(t, r)
	if n := r.Asking(t); n != 1 {
		t.Errorf("%d requests in progress after a recount of an entry with both flags, want 1", n)
	}
}

// TestRecountUnderTraffic: recounts while connections ask and are answered set a wrong count
// right and are off by none in the end: 100,000 connections, and fewer that change faster
// than that.
func TestRecountUnderTraffic(t *testing.T) {
	for _, c := range []struct{ connections, recounts int }{{100_000, 6}, {2000, 60}} {
		r := manyFlows(t, 4*c.connections, func(spec *ebpf.CollectionSpec) error { return spec.Variables["stalls"].Set(true) })
		all := openAll(t, r, c.connections)
		for i := range all[:c.connections/2] {
			all[2*i].turn(t, r)
		}
		r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking[0] -= uint32(c.connections); l.Asking[1] = 12345 })
		stop := traffic(t, all, func() *rig.Agent { return r })
		for range c.recounts {
			recount(t, r)
		}
		stop()
		if got, want := r.Asking(t), asking(all); got != want {
			t.Errorf("%d requests in progress by the count, %d by %d connections", got, want, c.connections)
		}
		for range 5 { // as upkeep does it
			if _, err := r.SweepTurn(); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := r.Asking(t), asking(all); got != want {
			t.Errorf("after a sweep in turns %d requests in progress, %d by %d connections", got, want, c.connections)
		}
	}
}

// TestTakeoverUnderLoad: an agent that takes over while the programs of that before count
// loses no count.
func TestTakeoverUnderLoad(t *testing.T) {
	const connections, takeovers = 500, 12
	rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort)) // for its namespace
	cfg := rig.AgentConfig(connections, rig.Offering(rig.HuntPort, rig.ByTable))
	cfg.Pin = rig.BPFFS(t) + "/s1"
	var now atomic.Pointer[rig.Agent]
	begin := func() *rig.Agent {
		r := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
		return r
	}
	now.Store(begin())
	if err := now.Load().Attach(); err != nil {
		t.Fatal(err)
	}
	all := openAll(t, now.Load(), connections)
	stop := traffic(t, all, now.Load)
	for i := range takeovers {
		now.Load().Die()
		next := begin()
		stop()
		if got, want := next.Asking(t), asking(all); got != want {
			t.Fatalf("takeover %d: %d requests in progress by the count, %d by the connections", i, got, want)
		}
		if err := next.Attach(); err != nil || !next.Adopted() {
			t.Fatalf("takeover %d: adopted %v, %v", i, next.Adopted(), err)
		}
		now.Store(next)
		stop = traffic(t, all, now.Load)
	}
	stop()
	if got, want := now.Load().Asking(t), asking(all); got != want {
		t.Errorf("%d requests in progress by the count, %d by the connections", got, want)
	}
}

// TestNumberOfAnotherService: a service that gets the number of one that is gone does not
// count its flows.
func TestNumberOfAnotherService(t *testing.T) {
	rig.Enter(t)
	offer := func(port uint16) topo.Offering { return rig.Offering(port, rig.ByTable) }
	cfg := rig.AgentConfig(64, offer(81))
	cfg.Pin = rig.BPFFS(t) + "/s1"
	next := func(services ...topo.Offering) *rig.Agent {
		t.Helper()
		cfg.Services = services
		r := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
		if err := r.Attach(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := next(offer(81))
	gone := conversation{client: clientOf(1), port: 81}
	gone.open(t, r)
	gone.turn(t, r)
	r.Die()
	next(offer(82)).Die()
	r = next(offer(82), offer(83))
	if l, err := r.Load(1); err != nil || l.Asking != 0 {
		t.Errorf("the new service begins with %+v (%v)", l, err)
	}
	if embryonic, established := rig.ConnsOf(t, r.Agent).Count(t); embryonic+established != 0 {
		t.Errorf("%d entries of a service that is not offered", embryonic+established)
	}
	stays := conversation{client: clientOf(2), port: 83}
	stays.open(t, r)
	stays.turn(t, r)
	if _, err := r.SweepAt(rig.Start + 3*time.Hour); err != nil {
		t.Fatal(err)
	}
	var l objects.AgentLoad
	for i := range uint32(3) {
		if err := r.Objects().Loads.Lookup(i, &l); err != nil || l.Asking[0]+l.Asking[1] != 0 {
			t.Errorf("load %d after all flows: %d (%v)", i, l.Asking, err)
		}
	}
}
