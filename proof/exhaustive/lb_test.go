package exhaustive_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/dataplane/lb"
	"proffer/policy"
	"proffer/proof/fsm"
	"proffer/proof/rig"
	"proffer/table"
	"proffer/topo"
	"proffer/wire"
)

// lbMessage is a letter of the LB's alphabet: a packet, or time that passes.
type lbMessage struct {
	name   string
	packet fsm.Packet
	frame  []byte
	after  time.Duration
}

func farmConfig(name string, locator topo.Node, servers int) *topo.LB {
	svc := rig.Service(rig.HuntPort, topo.Hunt, 2, servers)
	svc.Buckets = 251
	return &topo.LB{
		Node:         topo.Node{Name: name, Locator: locator.Locator, Interface: rig.Device},
		CandidateKey: topo.Key{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		Flows:        topo.FlowTable{Entries: 64, Idle: 5 * time.Minute, Linger: 10 * time.Second},
		Services:     []topo.Service{svc},
	}
}

// poolOf is the flow's list as the LB must have it.
func poolOf(t testing.TB, cfg *topo.LB, f policy.Flow) (p fsm.Pool) {
	t.Helper()
	svc := &cfg.Services[0]
	tab, err := table.Of(svc, svc.Servers)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range tab.Lookup(policy.NewDigestKey(cfg.CandidateKey).Digest(f)) {
		p.Candidates = append(p.Candidates, nodeOf(svc.Servers[i].Locator))
	}
	p.Members = p.Candidates
	return p
}

// stranger is a server of the farm that is no candidate.
func stranger(pool fsm.Pool) fsm.Node {
	z := fsm.Node(firstServer)
	for slices.Contains(pool.Members, z) {
		z++
	}
	return z
}

// lbAlphabet is what the client, the candidates x and y, a server z that is none, and an LB's
// own list that goes on may say of the connections a and b.
func lbAlphabet(pool fsm.Pool) []lbMessage {
	x, y, z := pool.Candidates[0], pool.Candidates[1], stranger(pool)
	client := func(name string, s fsm.TCP) lbMessage {
		return lbMessage{name: name, packet: fsm.Packet{TCP: s}}
	}
	from := func(name string, who fsm.Node, f wire.Function, isn uint32, s fsm.TCP) lbMessage {
		return lbMessage{name: name, packet: fsm.Packet{
			TCP: s, From: who,
			SID: fsm.SID{Node: nodeOf(rig.LbLocator), Function: f, Generation: wire.Generation(isn)},
		}}
	}
	says := func(who fsm.Node, flags uint8, isn, ahead uint32) fsm.TCP {
		return fsm.TCP{Flags: flags, Seq: isnOf(who, isn) + ahead, Ack: isn + 1}
	}
	data := fsm.TCP{Flags: wire.ACK | wire.PSH, Seq: isnA + 1, Ack: isnOf(x, isnA) + 500, Payload: 10}
	synB := fsm.TCP{Flags: wire.SYN, Seq: isnB}
	alive := from("nm x b SYN, held", x, wire.NotMine, isnB, synB)
	alive.packet.Held = true
	goOn := from("rs that comes back", nodeOf(rig.LbLocator), wire.RecoverStickiness, isnA, data)
	goOn.packet.Position = 1
	closed := func(m lbMessage, sides uint8) lbMessage {
		m.packet.Closed = sides
		return m
	}
	all := []lbMessage{
		client("SYN a", fsm.TCP{Flags: wire.SYN, Seq: isnA}),
		client("SYN b", fsm.TCP{Flags: wire.SYN, Seq: isnB}),
		client("ACK a to x", fsm.TCP{Flags: wire.ACK, Seq: isnA + 1, Ack: isnOf(x, isnA) + 1}),
		client("ACK a to y", fsm.TCP{Flags: wire.ACK, Seq: isnA + 1, Ack: isnOf(y, isnA) + 1}),
		client("ACK of nothing", fsm.TCP{Flags: wire.ACK, Seq: isnA + 1, Ack: 12345}),
		client("data", data),
		client("FIN a to x at once", fsm.TCP{Flags: wire.FIN | wire.ACK, Seq: isnA + 1, Ack: isnOf(x, isnA) + 1}),
		client("FIN", fsm.TCP{Flags: wire.FIN | wire.ACK, Seq: isnA + 11, Ack: isnOf(x, isnA) + 500}),
		client("RST", fsm.TCP{Flags: wire.RST, Seq: isnA + 1}),
		from("cs x a SYN-ACK", x, wire.CreateStickiness, isnA, says(x, wire.SYN|wire.ACK, isnA, 0)),
		from("cs y a SYN-ACK", y, wire.CreateStickiness, isnA, says(y, wire.SYN|wire.ACK, isnA, 0)),
		from("cs x b SYN-ACK", x, wire.CreateStickiness, isnB, says(x, wire.SYN|wire.ACK, isnB, 0)),
		from("cs x a data", x, wire.CreateStickiness, isnA, says(x, wire.ACK, isnA, 1)),
		from("cs x a RST", x, wire.CreateStickiness, isnA, says(x, wire.RST, isnA, 1)),
		from("cs y b data", y, wire.CreateStickiness, isnB, says(y, wire.ACK, isnB, 1)),
		from("rms x a FIN", x, wire.RemoveStickiness, isnA, says(x, wire.FIN|wire.ACK, isnA, 1)),
		from("rms x a RST", x, wire.RemoveStickiness, isnA, says(x, wire.RST, isnA, 1)),
		closed(from("cs x a FIN", x, wire.CreateStickiness, isnA, says(x, wire.FIN|wire.ACK, isnA, 1)), fsm.ClosedServer),
		closed(from("rms x a FIN, both closed", x, wire.RemoveStickiness, isnA, says(x, wire.FIN|wire.ACK, isnA, 1)), fsm.ClosedClient|fsm.ClosedServer),
		from("rms y a FIN", y, wire.RemoveStickiness, isnA, says(y, wire.FIN|wire.ACK, isnA, 1)),
		from("nm x a data", x, wire.NotMine, isnA, data),
		from("nm x a SYN", x, wire.NotMine, isnA, fsm.TCP{Flags: wire.SYN, Seq: isnA}),
		from("nm x b SYN", x, wire.NotMine, isnB, synB),
		alive,
		from("cs y b SYN-ACK", y, wire.CreateStickiness, isnB, says(y, wire.SYN|wire.ACK, isnB, 0)),
		from("cs z a data", z, wire.CreateStickiness, isnA, says(z, wire.ACK, isnA, 1)),
		from("rms z a RST", z, wire.RemoveStickiness, isnA, says(z, wire.RST, isnA, 1)),
		goOn,
		{name: "2 s", after: 2 * time.Second},
		{name: "11 s", after: 11 * time.Second},
		{name: "301 s", after: 301 * time.Second},
	}
	for i := range all {
		if all[i].after == 0 {
			all[i].frame = frameOf(all[i].packet)
		}
	}
	return all
}

// lbState is all that the program remembers of the flow.
type lbState struct {
	entry rig.Entry
	syns  [4][8]byte
}

type lbTree struct {
	*probe
	t        testing.TB
	lb       *lb.LB
	pool     fsm.Pool
	alphabet []lbMessage
	syns     *ebpf.Memory
	slots    [4]int
	entry    slot[rig.Entry]
	have     lbState
	known    map[lbVisit]int
	runs     int
	hits     rig.Hits
}

func newLBTree(t testing.TB) *lbTree {
	t.Helper()
	rig.Enter(t)
	cfg := farmConfig("lb", topo.Node{Locator: rig.LbLocator}, 3)
	l, err := lb.NewWith(cfg, forProbes)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	hops := topo.NextHops{hostPrefix: rig.RouterMAC}
	for i := range 3 {
		hops[rig.ServerLocator(i)] = rig.HopMAC(i)
	}
	if err := l.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
	f := rig.Inward(rig.HuntPort, wire.SYN).Flow()
	x := &lbTree{
		probe: newProbe(t, l.Objects().Lb, l.Names, l.Objects().Counters), t: t, lb: l,
		pool: poolOf(t, cfg, f), syns: rig.PagesOf(t, l.Objects().Syns), hits: rig.Hits{}, known: map[lbVisit]int{},
	}
	x.alphabet = lbAlphabet(x.pool)
	table := rig.TableOf(t, l, cfg)
	x.entry = slot[rig.Entry]{table: table, f: f}
	for i, seq := range []uint32{isnA, isnB, isnA + 1, isnA + 11} {
		x.slots[i] = digestSlot(table.Key, f, seq)
	}
	return x
}

func (x *lbTree) read() {
	x.entry.read(x.t)
	x.have.entry = x.entry.entry
	for i, at := range x.slots {
		readAt(x.t, x.syns, x.have.syns[i][:], 8*at)
	}
}

func (x *lbTree) restore(was lbState) {
	x.entry.restore(x.t, was.entry)
	for i, at := range x.slots {
		if x.have.syns[i] != was.syns[i] {
			writeAt(x.t, x.syns, was.syns[i][:], 8*at)
		}
	}
	x.have = was
}

// as is the program's state, in the model's words.
func (s *lbState) as() (m fsm.LB) {
	if f, known := s.entry.Flow(); known {
		m.Flow = fsm.Flow{
			Known: true, Server: firstServer + fsm.Node(f.Server), Generation: f.Generation,
			Announced: f.Announced, Closed: uint8(f.Closed), Seen: f.Seen,
		}
	}
	if e, known := s.entry.Embryonic(); known {
		m.Embryonic = fsm.Embryonic{
			Known: true, Server: firstServer + fsm.Node(e.Server), Generation: e.Generation,
			Expects: e.Expects, Seen: e.Seen,
		}
	}
	return m
}

// lbVisit is the state after a sequence: later steps depend on nothing else.
type lbVisit struct {
	state lbState
	now   time.Duration
	left  int
}

// walk tries every message after those that led here, unless others led here
// before, and returns how many steps that is.
func (x *lbTree) walk(left int, model fsm.LB, now time.Duration, came trail) (steps int) {
	was := x.have
	now += time.Millisecond
	visit := lbVisit{was, now, left}
	if steps, known := x.known[visit]; known {
		return steps
	}
	for i := range x.alphabet {
		m := &x.alphabet[i]
		then, at := x.step(m, model, now, came)
		if x.t.Failed() {
			return steps
		}
		steps++
		if left > 1 {
			steps += x.walk(left-1, then, at, append(came, m.name))
		}
		x.restore(was)
	}
	x.known[visit] = steps
	return steps
}

// step is a message through the program and the model.
func (x *lbTree) step(m *lbMessage, model fsm.LB, now time.Duration, came trail) (fsm.LB, time.Duration) {
	x.runs++
	now += m.after
	x.at(x.t, now)
	var err error
	if m.after > 0 {
		_, err = x.lb.SweepAt(now)
		model = model.Sweep(now, 10*time.Second, 5*time.Minute)
	} else {
		var want fsm.Outcome
		model, want = model.Step(x.pool, now, m.packet)
		got := x.send(x.t, m.frame)
		err = differs(got, want, m.packet, nil)
		for _, why := range got.Reasons {
			x.hits[why] = true
		}
	}
	x.read()
	if is := x.have.as(); err == nil && (is.Flow != model.Flow || is.Embryonic != model.Embryonic) {
		x.t.Errorf("after %v, %s: state %+v, the model %+v", came, m.name, is, model)
	}
	if err != nil {
		x.t.Errorf("after %v, %s: %v", came, m.name, err)
	}
	return model, now
}

// TestExhaustiveLB: 6LB Table II, completed: every sequence of so many messages.
func TestExhaustiveLB(t *testing.T) {
	x := newLBTree(t)
	x.read()
	deepen(t, len(x.alphabet), &x.runs, func(depth int) int {
		return x.walk(depth, fsm.LB{}, rig.Start, nil)
	})
	if !t.Failed() {
		x.hits.Covers(t, lbProtocol, nil)
	}
}

// lbProtocol are the counters of Table II's machine with one flow and no keys.
var lbProtocol = []string{
	"offer", "offer_again", "offer_retry", "offer_returned", "steer", "recover", "recover_returned",
	"list_continued", "flow_established", "stickiness_created", "stickiness_recovered",
	"stickiness_repeated", "stickiness_removed", "stickiness_conflict", "create_old_generation",
	"remove_unknown", "remove_old_generation", "stale_removed", "reject", "drop_stickiness_conflict",
	"offer_challenge", "drop_not_candidate", "drop_not_released",
}
