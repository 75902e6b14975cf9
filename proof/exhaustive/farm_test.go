package exhaustive_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/dataplane/lb"
	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/proof/fsm"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// A client, two LBs and two servers with programs that exchange real frames over a
// network that loses, doubles, delays and reorders any of them, while routes
// change between the LBs and servers get busy. A schedule is a list of numbers;
// each chooses the next event. A failing schedule is shrunk to a short one.

// flying is a frame on its way; hops is how many programs it and what it was
// before have passed.
type flying struct {
	frame []byte
	hops  int
}

// mostHops bounds the hops of a packet: an offer that visits two servers, comes
// back and visits them again, and the answer by the LB, is eight programs.
const mostHops = 10

// nodeLB and nodeServer are the real programs.
type nodeLB struct {
	*probe
	lb    *lb.LB
	entry slot[rig.Entry]
}

type nodeServer struct {
	*serverProbe
	conn   slot[rig.ConnEntry]
	kernel kernel
}

// smallFarm is all of it, with its history.
type smallFarm struct {
	t        testing.TB
	lbs      [2]nodeLB
	servers  [2]nodeServer
	client   caller
	air      []flying
	route    int     // of the client's packets
	deaf     [2]bool // at some time
	full     bool
	now      time.Duration
	wrong    string
	log      trail
	accepted map[uint32]fsm.Node // the server of each connection
	hits     rig.Hits
	turn     uint32 // schedules so far: each has numbers of its own
	frames   int
	tracing  bool
}

var farmKeys = topo.SignalKey{ID: 7, Farm: topo.Key{1, 3, 5}, Server: topo.Key{2, 4, 6}}

func newSmallFarm(t testing.TB) *smallFarm {
	t.Helper()
	rig.Enter(t)
	n := &smallFarm{t: t, now: rig.Start, hits: rig.Hits{}}
	hops := topo.NextHops{
		hostPrefix: rig.RouterMAC, rig.LbLocator: rig.HopMAC(0xb), secondLB: rig.HopMAC(0xc),
		rig.ServerLocator(0): rig.HopMAC(0), rig.ServerLocator(1): rig.HopMAC(1),
	}
	for i, locator := range []netip.Prefix{rig.LbLocator, secondLB} {
		n.lbs[i] = newNodeLB(t, locator, hops, rig.Inward(rig.HuntPort, wire.SYN).Flow())
	}
	for i := range n.servers {
		own := farmKeys
		own.Server = wire.ServerKey(farmKeys.Server, rig.ServerLocator(i))
		s := newServerProbe(t, topo.Node{Locator: rig.ServerLocator(i)}, hops, own)
		n.servers[i] = nodeServer{
			serverProbe: s,
			conn:        slot[rig.ConnEntry]{table: rig.ConnsOf(t, s.agent), f: rig.Inward(rig.HuntPort, wire.SYN).Flow()},
		}
	}
	return n
}

func newNodeLB(t testing.TB, locator netip.Prefix, hops topo.NextHops, f policy.Flow) nodeLB {
	t.Helper()
	cfg := farmConfig("lb", topo.Node{Locator: locator}, 2)
	cfg.Keys = []topo.SignalKey{farmKeys}
	l, err := lb.NewWith(cfg, forProbes)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { l.Close() })
	if err := l.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
	return nodeLB{
		probe: newProbe(t, l.Objects().Lb, l.Names, l.Objects().Counters), lb: l,
		entry: slot[rig.Entry]{table: rig.TableOf(t, l, cfg), f: f},
	}
}

func (n *smallFarm) note(format string, args ...any) {
	if n.tracing {
		n.log = append(n.log, fmt.Sprintf(format, args...))
	}
}

func (n *smallFarm) fail(format string, args ...any) {
	if n.wrong == "" {
		n.wrong = fmt.Sprintf(format, args...)
		n.note("WRONG: %s", n.wrong)
	}
}

// pass moves every node's clock.
func (n *smallFarm) pass(d time.Duration) {
	n.now += d
	for i := range n.lbs {
		n.lbs[i].at(n.t, n.now)
	}
	for i := range n.servers {
		n.servers[i].in.at(n.t, n.now)
	}
}

// launch puts a frame into the air.
func (n *smallFarm) launch(frame []byte, hops int) {
	if hops > mostHops {
		n.fail("a packet goes round: %d hops", hops)
		return
	}
	f := flying{slices.Clone(frame), hops}
	copy(f.frame, rig.HereMAC[:]) // every node's here
	n.air = append(n.air, f)
}

// arrive is a frame where it goes to.
func (n *smallFarm) arrive(f flying) {
	s, err := readFrame(f.frame)
	if err != nil {
		n.fail("frame %x: %v", f.frame, err)
		return
	}
	n.frames++
	switch {
	case len(s.route) == 0 && s.out:
		n.toClient(s.tcp)
	case len(s.route) == 0:
		n.toLB(n.route, f, s)
	case s.route[0].Node == nodeOf(rig.LbLocator):
		n.toLB(0, f, s)
	case s.route[0].Node == nodeOf(secondLB):
		n.toLB(1, f, s)
	default:
		n.toServer(int(s.route[0].Node)-firstServer, f, s)
	}
}

func (n *smallFarm) toLB(i int, f flying, s sight) {
	got := n.lbs[i].send(n.t, f.frame)
	n.met(got)
	if n.tracing {
		to, _ := readFrame(got.Frame)
		n.note("lb%d gets %v %s: %v -> %v", i, s.route, tcpText(s.tcp), got.Reasons, to.route)
	}
	switch got.Action {
	case rig.XDPTX:
		n.launch(got.Frame, f.hops+1)
	case rig.XDPPass:
		n.fail("lb%d gives %v to its stack", i, got.Reasons)
	}
}

func (n *smallFarm) met(o rig.Outcome) {
	for _, why := range o.Reasons {
		n.hits[why] = true
	}
}

func (n *smallFarm) toServer(i int, f flying, s sight) {
	v := &n.servers[i]
	v.tell(n.t, v.kernel.host())
	got := v.in.send(n.t, f.frame)
	n.met(got)
	if n.tracing {
		to, _ := readFrame(got.Frame)
		n.note("s%d gets %v %s: %v -> %v", i, s.route, tcpText(s.tcp), got.Reasons, to.route)
	}
	switch got.Action {
	case rig.XDPTX:
		n.launch(got.Frame, f.hops+1)
	case rig.XDPPass:
		n.toKernel(i, s.tcp, f.hops+1)
	}
}

// ours reports whether the client's live connection is with that kernel.
func (n *smallFarm) ours(k *kernel) bool {
	return n.client.state == callerLive && k.state != fsm.NoSocket && k.state != fsm.TimeWait &&
		k.isn == n.client.isn && k.own == n.client.peer
}

func (n *smallFarm) toKernel(i int, s fsm.TCP, hops int) {
	k := &n.servers[i].kernel
	mine, was := n.ours(k), k.state
	answer, answers := k.take(s)
	if mine && k.state == fsm.NoSocket {
		n.fail("s%d's socket of a live connection was reset by %s", i, tcpText(s))
	}
	if was != fsm.Full && k.state == fsm.Full {
		if other, taken := n.accepted[k.isn]; taken && other != k.server {
			n.fail("%v and %v both accepted connection %d", other, k.server, k.isn)
		}
		n.accepted[k.isn] = k.server
	}
	if answers {
		n.speaks(i, answer, hops)
	}
}

// speaks is a segment of a server's stack, through its program on the way out.
func (n *smallFarm) speaks(i int, s fsm.TCP, hops int) {
	got := n.servers[i].out.send(n.t, tcpPacket(s, false).Frame())
	n.met(got)
	if n.tracing {
		to, _ := readFrame(got.Frame)
		n.note("s%d says %s: %v -> %v", i, tcpText(s), got.Reasons, to.route)
	}
	n.launch(got.Frame, hops)
}

// serverAgain is the frame that a server's timer sends.
func (n *smallFarm) serverAgain(i int) {
	if s, ok := n.servers[i].kernel.again(); ok {
		n.speaks(i, s, 0)
	}
}

// serverActs is the application: data, or the end.
func (n *smallFarm) serverActs(i int, end bool) {
	k := &n.servers[i].kernel
	switch {
	case k.state != fsm.Full || k.finOut:
	case end || k.finIn:
		n.speaks(i, k.send(0, true), 0)
	case k.sent-k.own < 100:
		n.speaks(i, k.send(10, false), 0)
	}
}

// busy makes a server's policy decline, or no more.
func (n *smallFarm) busy(i int, yes bool) {
	var l objects.AgentLoad
	loads := n.servers[i].agent.Objects().Loads
	if err := loads.Lookup(uint32(0), &l); err != nil {
		n.t.Fatal(err)
	}
	l.Threshold = willing
	if yes {
		l.Threshold = 0
	}
	if err := loads.Put(uint32(0), &l); err != nil {
		n.t.Fatal(err)
	}
}
