package exhaustive_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/dataplane/agent"
	"proffer/dataplane/objects"
	"proffer/proof/fsm"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// serverProbe is an agent under test, with a kernel's state that the test sets.
type serverProbe struct {
	in, out  *probe
	agent    *agent.Agent
	sockets  *ebpf.Memory
	refusals *ebpf.Memory
}

func newServerProbe(t testing.TB, locator topo.Node, hops topo.NextHops, keys ...topo.SignalKey) *serverProbe {
	t.Helper()
	cfg := &topo.Agent{
		Node:  topo.Node{Name: "s", Locator: locator.Locator, Interface: rig.Device, Keys: keys},
		Flows: topo.FlowTable{Entries: 64, Embryonic: 64, Idle: 5 * time.Minute, Linger: 10 * time.Second},
		Services: []topo.Offering{{
			Name: "web", VIP: topo.VIP{Addr: rig.VipAddr, Port: rig.HuntPort},
			Acceptance: topo.Static, Threshold: willing, Window: 50, Epsilon: 0.1, Workers: 32, Cores: 2,
		}},
	}
	a, err := agent.NewWith(cfg, forProbes)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := a.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
	return &serverProbe{
		in: newProbe(t, a.Objects().AgentIn, a.Names, a.Objects().Counters), out: newProbe(t, a.Objects().AgentOut, a.Names, a.Objects().Counters),
		agent: a, sockets: rig.PagesOf(t, rig.SectionOf(t, a.Objects().AgentIn, ".data.sockets")), refusals: rig.PagesOf(t, a.Objects().PassedOnOffers),
	}
}

const willing = 1 << 20 // a threshold that no load of the test reaches

// tell writes the kernel's state, as struct socket of socket.h.
func (s *serverProbe) tell(t testing.TB, h fsm.Host) {
	state := map[fsm.State]uint32{
		fsm.Request: 12, fsm.Full: 1, fsm.TimeWait: 6, // BPF_TCP_* of linux/bpf.h
	}[h.State]
	listening, full := uint32(0), uint32(0)
	if h.Listening {
		listening = 1
	}
	if h.Backlog {
		full = 1
	}
	if h.State == fsm.NoSocket && h.Listening {
		state = 10 // a listener
	}
	number := h.Next
	switch {
	case h.State == fsm.Request:
		number = h.ServerISN
	case h.State == fsm.TimeWait:
		number = h.Sent
	case h.State == fsm.NoSocket: // no cookie
		number = 0
	}
	b := make([]byte, 0, 28)
	for _, word := range []uint32{state, h.ClientISN, number, listening, full, 0, h.Window} {
		b = binary.NativeEndian.AppendUint32(b, word)
	}
	writeAt(t, s.sockets, b, 0)
}

// agentState is all that the programs remember of the flow, and its kernel.
type agentState struct {
	conn     slot[rig.ConnEntry]
	load     objects.AgentLoad
	refusals [2][8]byte
	kernel   kernel
}

// agentMessage is a letter of the agent's alphabet. make gives the packet, or
// means that the kernel would not send it now.
type agentMessage struct {
	name   string
	in     func(k kernel) fsm.Packet
	out    func(k *kernel) (fsm.TCP, bool)
	change func(s *agentState)
	after  time.Duration
}

type agentTree struct {
	*serverProbe
	t        testing.TB
	alphabet []agentMessage
	frames   map[fsm.Packet][]byte
	beyond   []fsm.SID
	slots    [2]int
	have     agentState
	known    map[agentVisit]int
	runs     int
	hits     rig.Hits
}

func newAgentTree(t testing.TB) *agentTree {
	t.Helper()
	rig.Enter(t)
	x := &agentTree{
		t: t, hits: rig.Hits{}, known: map[agentVisit]int{}, frames: map[fsm.Packet][]byte{}, alphabet: agentAlphabet(),
		beyond: []fsm.SID{{Node: firstServer + 2, Function: wire.ConnectForce}},
	}
	x.serverProbe = newServerProbe(t, topo.Node{Locator: rig.ServerLocator(1)}, topo.NextHops{
		hostPrefix: rig.RouterMAC, rig.LbLocator: rig.HopMAC(0xb), secondLB: rig.HopMAC(0xc), rig.ServerLocator(2): rig.HopMAC(2),
	})
	f := rig.Inward(rig.HuntPort, wire.SYN).Flow()
	table := rig.ConnsOf(t, x.agent)
	x.slots = [2]int{digestSlot(table.Key, f, isnA), digestSlot(table.Key, f, isnB)}
	x.have.conn = slot[rig.ConnEntry]{table: table, f: f}
	x.have.kernel.server = firstServer + 1
	return x
}

var secondLB = locatorOf(0xc)

// agentAlphabet is the actions of two LBs, the server's own stack and its load on
// the connections a and b.
func agentAlphabet() []agentMessage {
	lb1, lb2 := nodeOf(rig.LbLocator), nodeOf(secondLB)
	opening := func(name string, lb fsm.Node, isn uint32, s fsm.SID, others bool) agentMessage {
		s.Node, s.Generation = firstServer+1, wire.Generation(isn)
		return agentMessage{name: name, in: func(kernel) fsm.Packet {
			return fsm.Packet{TCP: fsm.TCP{Flags: wire.SYN, Seq: isn}, SID: s, From: lb, Others: others}
		}}
	}
	client := func(name string, lb fsm.Node, f wire.Function, isn uint32, others bool, s func(k kernel) fsm.TCP) agentMessage {
		to := fsm.SID{Node: firstServer + 1, Function: f, Generation: wire.Generation(isn)}
		if f == wire.RecoverStickiness {
			to.Generation = 0
		}
		return agentMessage{name: name, in: func(k kernel) fsm.Packet {
			return fsm.Packet{TCP: s(k), SID: to, From: lb, Others: others}
		}}
	}
	next := func(flags uint8, bytes uint32) func(k kernel) fsm.TCP {
		return func(k kernel) fsm.TCP {
			seq := k.next
			if k.state == fsm.NoSocket {
				seq = isnA + 1
			}
			return fsm.TCP{Flags: flags, Seq: seq, Ack: k.sent, Payload: bytes}
		}
	}
	says := func(when fsm.State, what func(k *kernel) fsm.TCP) func(k *kernel) (fsm.TCP, bool) {
		return func(k *kernel) (s fsm.TCP, ok bool) {
			if k.state == when {
				return what(k), true
			}
			return s, false
		}
	}
	stray := func(flags uint8) func(k kernel) fsm.TCP {
		return func(kernel) fsm.TCP { return fsm.TCP{Flags: flags, Seq: isnA + 1000, Ack: 12345} }
	}
	beyond := func(flags uint8, bytes uint32) func(k kernel) fsm.TCP {
		return func(k kernel) fsm.TCP { return fsm.TCP{Flags: flags, Seq: isnA + 1<<30, Ack: k.sent, Payload: bytes} }
	}
	reject := func(kernel) fsm.TCP { return fsm.TCP{Flags: wire.RST, Seq: isnA + 1} }
	ca, cf := fsm.SID{Function: wire.ConnectAvail}, fsm.SID{Function: wire.ConnectForce}
	retry, final := ca, cf
	retry.Retry, final.Final = true, true
	held := ca
	held.Held = true
	return []agentMessage{
		opening("ca a lb1", lb1, isnA, ca, true),
		opening("ca a lb2 retry", lb2, isnA, retry, true),
		opening("cf a lb1", lb1, isnA, cf, false),
		opening("ca b lb1", lb1, isnB, ca, true),
		opening("ca b lb1 held", lb1, isnB, held, true),
		opening("cf b lb2 final", lb2, isnB, final, false),
		client("as a lb1 ACK", lb1, wire.AckStickiness, isnA, false, next(wire.ACK, 0)),
		client("as a lb1 stray ACK", lb1, wire.AckStickiness, isnA, false, stray(wire.ACK)),
		client("as a lb1 ACK of another's SYN-ACK", lb1, wire.AckStickiness, isnA, false, func(kernel) fsm.TCP { return fsm.TCP{Flags: wire.ACK, Seq: isnA + 1, Ack: 12345} }),
		client("as a lb2 data", lb2, wire.AckStickiness, isnA, false, next(wire.ACK|wire.PSH, 10)),
		client("as a lb1 data beyond", lb1, wire.AckStickiness, isnA, false, beyond(wire.ACK|wire.PSH, 1)),
		client("as a lb1 FIN beyond", lb1, wire.AckStickiness, isnA, false, beyond(wire.FIN|wire.ACK, 0)),
		client("as a lb1 FIN", lb1, wire.AckStickiness, isnA, false, next(wire.FIN|wire.ACK, 0)),
		client("as a lb1 RST", lb1, wire.AckStickiness, isnA, false, next(wire.RST, 0)),
		client("as a lb1 stray RST", lb1, wire.AckStickiness, isnA, false, stray(wire.RST)),
		client("as b lb1 ACK", lb1, wire.AckStickiness, isnB, false, next(wire.ACK, 0)),
		client("rs lb2 data", lb2, wire.RecoverStickiness, isnA, true, next(wire.ACK|wire.PSH, 10)),
		client("rs lb2 data, last", lb2, wire.RecoverStickiness, isnA, false, next(wire.ACK|wire.PSH, 10)),
		client("rj a", lb1, wire.Reject, isnA, false, reject),
		{name: "SYN-ACK", out: says(fsm.Request, (*kernel).synAck)},
		{name: "answer", out: says(fsm.Full, func(k *kernel) fsm.TCP { return k.send(10, false) })},
		{name: "server's FIN", out: says(fsm.Full, func(k *kernel) fsm.TCP { return k.send(0, true) })},
		{name: "server's RST", out: func(k *kernel) (fsm.TCP, bool) { return k.abort(), true }},
		{name: "load changes", change: func(s *agentState) { s.load.Threshold ^= willing }},
		{name: "queue changes", change: func(s *agentState) { s.kernel.full = !s.kernel.full }},
		{name: "listener changes", change: func(s *agentState) { s.kernel.deaf = !s.kernel.deaf }},
		{name: "61 s", after: 61 * time.Second},
		{name: "301 s", after: 301 * time.Second}, // the agent forgets what its kernel keeps
	}
}

func (x *agentTree) read() {
	x.have.conn.read(x.t)
	if err := x.agent.Objects().Loads.Lookup(uint32(0), &x.have.load); err != nil {
		x.t.Fatal(err)
	}
	for i, at := range x.slots {
		readAt(x.t, x.refusals, x.have.refusals[i][:], 8*at)
	}
}

func (x *agentTree) restore(was agentState) {
	x.have.conn.restore(x.t, was.conn.entry)
	x.putLoad(was.load)
	for i, at := range x.slots {
		if x.have.refusals[i] != was.refusals[i] {
			writeAt(x.t, x.refusals, was.refusals[i][:], 8*at)
		}
	}
	x.have = was
}

func (x *agentTree) putLoad(l objects.AgentLoad) {
	if l == x.have.load {
		return
	}
	if err := x.agent.Objects().Loads.Put(uint32(0), &l); err != nil {
		x.t.Fatal(err)
	}
	x.have.load = l
}

// connAs is an entry in the model's words.
func connAs(e rig.ConnEntry) (c fsm.Conn) {
	if !e.Known {
		return c
	}
	v := e.Conn
	var lb [8]byte
	binary.NativeEndian.PutUint64(lb[:], v.LbBe)
	return fsm.Conn{
		Known: true, Established: e.Established, Direct: v.State == 2, LB: fsm.Node(binary.BigEndian.Uint16(lb[6:])),
		Generation: v.Generation, Next: v.NextIn, Out: v.NextOut, Epoch: uint32(v.Epoch), Flags: uint32(v.Flags), Seen: time.Duration(v.Seen) * rig.ConnUnit,
	}
}

// matches reports whether the programs have the model's state.
func (x *agentTree) matches(m *fsm.Agent) bool {
	for i, p := range x.have.load.Pending {
		if p.Epoch != m.Expected[i].Epoch || p.Count != m.Expected[i].Count {
			return false
		}
	}
	return connAs(x.have.conn.entry) == m.Conn && objects.Asking(&x.have.load) == m.Asking
}

// agentVisit is the state after a sequence: later steps depend on nothing else.
type agentVisit struct {
	state agentState
	now   time.Duration
	left  int
}

// walk is lbTree's.
func (x *agentTree) walk(left int, model fsm.Agent, now time.Duration, came trail) (steps int) {
	was := x.have
	now += time.Millisecond
	visit := agentVisit{was, now, left}
	if steps, known := x.known[visit]; known {
		return steps
	}
	for i := range x.alphabet {
		m := &x.alphabet[i]
		then, at, possible := x.step(m, model, now, came)
		if x.t.Failed() {
			return steps
		}
		if possible {
			steps++
		}
		if possible && left > 1 {
			steps += x.walk(left-1, then, at, append(came, m.name))
		}
		x.restore(was)
	}
	x.known[visit] = steps
	return steps
}

// step is a message through the programs and the model.
func (x *agentTree) step(m *agentMessage, model fsm.Agent, now time.Duration, came trail) (_ fsm.Agent, _ time.Duration, possible bool) {
	var in fsm.Packet
	var got rig.Outcome
	var want fsm.Outcome
	now += m.after
	x.in.at(x.t, now)
	switch {
	case m.out != nil:
		if in.TCP, possible = m.out(&x.have.kernel); !possible {
			return model, now, false
		}
		model, want = model.Out(now, in.TCP)
		got = x.out.send(x.t, tcpPacket(in.TCP, false).Frame())
	case m.in != nil:
		in = m.in(x.have.kernel)
		h := x.have.kernel.host()
		x.tell(x.t, h)
		h.Busy = x.have.load.Threshold == 0
		model, want = model.In(h, now, in)
		got = x.in.send(x.t, x.frame(in))
		if got.Action == rig.XDPPass {
			x.have.kernel.take(in.TCP)
		}
	default:
		x.pass(m, now)
		model = model.Sweep(now, 10*time.Second, 5*time.Minute)
	}
	x.runs++
	x.read()
	for _, why := range got.Reasons {
		x.hits[why] = true
	}
	if m.in != nil || m.out != nil {
		if err := differs(got, want, in, x.beyond); err != nil {
			x.t.Errorf("after %v, %s: %v", came, m.name, err)
		}
	}
	if !x.matches(&model) {
		x.t.Errorf("after %v, %s: conn %+v, load %+v, the model %+v", came, m.name,
			connAs(x.have.conn.entry), x.have.load, model)
	}
	return model, now, true
}

// pass is a step without a packet: time, or a change of the server.
func (x *agentTree) pass(m *agentMessage, now time.Duration) {
	if m.change != nil {
		s := x.have
		m.change(&s)
		x.putLoad(s.load)
		x.have.kernel = s.kernel
		return
	}
	if x.have.kernel.state == fsm.Request || x.have.kernel.state == fsm.TimeWait {
		x.have.kernel.state = fsm.NoSocket // both end after a minute
	}
	if _, err := x.agent.SweepAt(now); err != nil {
		x.t.Fatal(err)
	}
}

func (x *agentTree) frame(in fsm.Packet) []byte {
	b := x.frames[in]
	if b == nil && in.Others {
		b = frameOf(in, x.beyond...)
	} else if b == nil {
		b = frameOf(in)
	}
	x.frames[in] = b
	return b
}

// TestExhaustiveAgent: 6LB Table III, completed: every sequence of so many
// messages and changes of the server.
func TestExhaustiveAgent(t *testing.T) {
	x := newAgentTree(t)
	x.read()
	deepen(t, len(x.alphabet), &x.runs, func(depth int) int {
		return x.walk(depth, fsm.Agent{}, rig.Start, nil)
	})
	if !t.Failed() {
		x.hits.Covers(t, agentProtocol, nil)
	}
}

// agentProtocol are the counters of Table III's machine with one flow and no keys.
var agentProtocol = []string{
	"accept_avail", "accept_force", "accept_repeated", "accept_challenged", "pass_on_busy",
	"pass_on_full", "pass_on_no_listener", "pass_on_again", "pass_on_not_mine",
	"refuse_full_reset", "refuse_no_listener", "give_back_no_listener", "give_back_not_mine", "steered",
	"steered_adopted", "steered_embryonic", "steered_other_generation", "established", "acknowledged",
	"recovered", "unowned", "rejected", "drop_reject_stale", "out_no_flow", "out_direct",
	"signal_create", "signal_remove",
}
