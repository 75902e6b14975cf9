package exhaustive_test

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"proffer/dataplane/objects"
	"proffer/proof/fsm"
	"proffer/proof/rig"
	"proffer/wire"
)

// happen is one number of a schedule.
func (n *smallFarm) happen(what uint32) {
	which := int(what>>8) & 0xffff
	i := which & 1
	switch kind := what & 0x7f; {
	case kind < 60:
		if len(n.air) == 0 {
			return
		}
		at := 0 // the oldest comes first more often than not
		if which&3 == 3 {
			at = which >> 2 % len(n.air)
		}
		n.network(at, kind)
	case kind < 72:
		n.again()
	case kind < 80:
		n.clientData()
	case kind < 84:
		n.clientClose()
	case kind < 94:
		n.serverAgain(i)
	case kind < 100:
		n.serverActs(i, kind == 99)
	case kind < 108:
		n.route = i
		n.note("the client's packets go to lb%d", i)
	case kind < 114:
		yes := which&2 != 0
		n.note("s%d busy: %v", i, yes)
		n.busy(i, yes)
	case kind < 118:
		n.trouble(i, kind)
	case kind < 121:
		d := []time.Duration{time.Millisecond, time.Second, 3 * time.Second, 11 * time.Second}[which&3]
		n.note("%v pass", d)
		n.pass(d)
	case kind < 125:
		if n.client.state != callerLive && n.client.state != callerOpening { // its ports are used again
			n.open()
		}
	default:
		n.forge(uint32(which), what>>24)
	}
}

// trouble is a node's failure.
func (n *smallFarm) trouble(i int, kind uint32) {
	k := &n.servers[i].kernel
	switch kind {
	case 114:
		k.deaf = !k.deaf
		n.deaf[i] = true
		n.note("s%d listens: %v", i, !k.deaf)
	case 115:
		k.full = !k.full
		n.full = true
		n.note("s%d's accept queue full: %v", i, k.full)
	case 116:
		if k.state == fsm.Full {
			n.note("s%d's application dies", i)
			n.speaks(i, k.abort(), 0)
		}
	case 117:
		n.note("lb%d forgets", i)
		n.remembered()
		n.forget(i)
	}
}

func (n *smallFarm) forget(i int) {
	l := &n.lbs[i]
	l.entry.restore(n.t, rig.Entry{})
}

// network is what becomes of the frame that is at that place in the air.
func (n *smallFarm) network(at int, kind uint32) {
	f := n.air[at]
	switch {
	case kind < 6:
		n.note("(one lost)")
		n.air = slices.Delete(n.air, at, at+1)
	case kind < 10 && len(n.air) < 12:
		n.note("(one doubled)")
		n.air = append(n.air, f)
	default:
		n.air = slices.Delete(n.air, at, at+1)
		n.arrive(f)
	}
}

// forge sends a node a signal by an attacker that has no key. (as has no tag: all it
// can do is end, or ask for, signalling.)
func (n *smallFarm) forge(which, salt uint32) {
	c := &n.client
	seq := c.isn
	m := fsm.Packet{From: nodeOf(rig.LbLocator)}
	m.Generation = wire.Generation(c.isn)
	toLB := which&1 == 0
	if toLB {
		m.From = firstServer + fsm.Node(which>>1&1)
		m.Function = []wire.Function{wire.CreateStickiness, wire.RemoveStickiness, wire.NotMine}[which>>2%3]
		m.Node = []fsm.Node{nodeOf(rig.LbLocator), nodeOf(secondLB)}[which>>4&1]
	} else {
		m.Function = []wire.Function{wire.ConnectAvail, wire.ConnectForce, wire.RecoverStickiness, wire.Reject}[which>>2&3]
		m.Node = firstServer + fsm.Node(which>>4&1)
	}
	m.Flags = []uint8{wire.SYN, wire.SYN | wire.ACK, wire.ACK, wire.RST, wire.FIN | wire.ACK}[which>>5%5]
	m.Seq, m.Ack = seq+which>>9&1, c.peer+1
	frame := frameOf(m)
	binary.BigEndian.PutUint32(frame[14+8+12:], salt*0x01010101) // half of the tag
	frame[14+24+13] = farmKeys.ID                                // whose key it claims
	before := n.remembered()
	s, _ := readFrame(frame)
	air := len(n.air)
	if toLB {
		n.toLB(int(which>>4&1), flying{frame, 0}, s)
	} else {
		n.toServer(int(m.Node)-firstServer, flying{frame, 0}, s)
	}
	if n.remembered() != before || len(n.air) != air {
		n.fail("a forged %+v was believed", m)
	}
}

// memory of all nodes about the flow.
type farmState struct {
	flows [2]rig.Entry
	conns [2]rig.ConnEntry
}

func (n *smallFarm) remembered() (s farmState) {
	for i := range 2 {
		n.lbs[i].entry.read(n.t)
		n.servers[i].conn.read(n.t)
		s.flows[i] = n.lbs[i].entry.entry
		s.conns[i] = n.servers[i].conn.entry
	}
	return s
}

// calm is the end of every schedule: the network is good again and all
// timers run, so every waiting client is served.
func (n *smallFarm) calm(rounds int, until func() bool) {
	for range rounds {
		for range 600 {
			if len(n.air) == 0 {
				break
			}
			f := n.air[0]
			n.air = n.air[1:]
			n.arrive(f)
		}
		if len(n.air) > 0 {
			n.fail("%d frames go round", len(n.air))
		}
		if n.wrong != "" || until() {
			return
		}
		n.pass(3 * time.Second)
		n.again()
		n.serverAgain(0)
		n.serverAgain(1)
	}
}

// settled: the client has its answer, or an error.
func (n *smallFarm) settled() bool {
	c := &n.client
	return c.state != callerOpening && (c.state != callerLive || c.una == c.next)
}

// schedule runs one schedule and returns its failure.
func (n *smallFarm) schedule(choices []uint32) string {
	n.begin()
	for _, what := range choices {
		if n.wrong != "" {
			break
		}
		n.happen(what)
	}
	if n.wrong == "" {
		n.end()
	}
	return n.wrong
}

// begin makes everything new.
func (n *smallFarm) begin() {
	n.wrong, n.log, n.air, n.route = "", nil, nil, 0
	n.accepted, n.deaf, n.full = map[uint32]fsm.Node{}, [2]bool{}, false
	n.remembered()
	for i := range 2 {
		n.forget(i)
		s := &n.servers[i]
		s.conn.restore(n.t, rig.ConnEntry{})
		s.kernel = kernel{server: firstServer + fsm.Node(i)}
		if err := s.agent.Objects().Loads.Put(uint32(0), objects.AgentLoad{Threshold: willing}); err != nil {
			n.t.Fatal(err)
		}
	}
	n.pass(100 * time.Second) // what was refused or seen is forgotten
	n.open()
}

// end: after calm a connection works; once it is closed and its time has passed,
// no node remembers it.
func (n *smallFarm) end() {
	n.note("calm")
	for i := range n.servers {
		n.servers[i].kernel.deaf, n.servers[i].kernel.full = false, false
		n.busy(i, false)
	}
	n.calm(12, n.settled)
	if n.wrong == "" && !n.settled() {
		n.fail("the client waits for ever: %+v", n.client)
	}
	n.clientData()
	n.calm(12, n.settled)
	if n.wrong == "" && !n.settled() {
		n.fail("the client's data does not arrive: %+v", n.client)
	}
	n.clientClose()
	n.calm(12, func() bool {
		for i := range n.servers {
			n.serverActs(i, true)
		}
		return n.client.state != callerLive && len(n.air) == 0
	})
	if n.wrong == "" && (n.ours(&n.servers[0].kernel) || n.ours(&n.servers[1].kernel)) {
		n.fail("the connection does not end: %+v", n.client)
	}
	n.calm(25, func() bool { return false }) // unwanted requests run out
	n.forgotten()
}

// forgotten checks the entries left after all time limits have passed.
func (n *smallFarm) forgotten() {
	n.pass(5*time.Minute + 11*time.Second)
	for i := range 2 {
		n.lbs[i].lb.SweepAt(n.now)
		n.servers[i].agent.SweepAt(n.now)
	}
	s := n.remembered()
	for i := range 2 {
		var l objects.AgentLoad
		if err := n.servers[i].agent.Objects().Loads.Lookup(uint32(0), &l); err != nil {
			n.t.Fatal(err)
		}
		if n.wrong == "" && (s.flows[i].Word != 0 || s.conns[i].Known || objects.Asking(&l) != 0) {
			n.fail("left over: %+v %+v asking %d", s.flows[i], s.conns[i].Conn, objects.Asking(&l))
		}
	}
}

// shrink leaves out whatever the failure does not need.
func (n *smallFarm) shrink(choices []uint32) []uint32 {
	for size := len(choices) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(choices); {
			shorter := slices.Delete(slices.Clone(choices), at, at+size)
			if n.schedule(shorter) != "" {
				choices = shorter
			} else {
				at += size
			}
		}
	}
	return choices
}

func wantedSchedules(t testing.TB) int {
	t.Helper()
	s := os.Getenv("PROFFER_SCHEDULES")
	if s == "" {
		return 20_000
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("PROFFER_SCHEDULES=%q: want a number, such as 100000", s)
	}
	return n
}

// TestSchedules: docs/failures.md, all that networks, routes and neighbours may do to
// the connections of one five-tuple.
func TestSchedules(t *testing.T) {
	n := newSmallFarm(t)
	seed, count, began := wantedSeed(t), wantedSchedules(t), time.Now()
	for k := range count {
		rng := rand.New(rand.NewPCG(seed, uint64(k)))
		choices := make([]uint32, 20+rng.IntN(60))
		for i := range choices {
			choices[i] = rng.Uint32()
		}
		if n.schedule(choices) != "" {
			n.tell(choices)
			t.Fatalf("schedule %d of seed %d: %s", k, seed, n.wrong)
		}
	}
	t.Logf("%d schedules of seed %d, %d frames, in %.1f minutes", count, seed, n.frames, time.Since(began).Minutes())
	n.hits.Covers(t, farmProtocol, nil)
}

// tell shows a failure, as shortly as it can.
func (n *smallFarm) tell(choices []uint32) {
	short := n.shrink(choices)
	n.tracing = true
	n.schedule(short)
	for _, line := range n.log {
		n.t.Log(line)
	}
}

func wantedSeed(t testing.TB) uint64 {
	t.Helper()
	s := os.Getenv("PROFFER_SEED")
	if s == "" {
		return 1
	}
	seed, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("PROFFER_SEED=%q: want a number", s)
	}
	return seed
}

// farmProtocol are the counters without which the schedules prove little.
var farmProtocol = []string{
	"accept_avail", "accept_challenged", "accept_force", "accept_repeated", "acknowledged",
	"drop_bad_tag", "drop_reject_stale", "drop_stickiness_conflict", "established",
	"flow_established", "give_back_not_mine", "offer_again", "offer_retry", "offer_returned",
	"pass_on_busy", "pass_on_no_listener", "pass_on_not_mine", "pass_on_again",
	"recover", "recover_returned", "recovered", "refuse_no_listener", "reject", "rejected",
	"give_back_no_listener", "signal_create", "signal_remove", "stale_removed", "steered",
	"steered_other_generation", "stickiness_conflict", "stickiness_created",
	"stickiness_recovered", "stickiness_removed", "stickiness_repeated", "unowned",
}
