package dataplane

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/policy"
	"proffer/topo"
)

// agentRig is the agent of server `here` under test.
type agentRig struct {
	rig
	*Agent
	out rig // the program on the way out
}

const here = 1

// offering is a service with a listener of its own choosing: static:4 by the
// load busy on two cores, unless change says otherwise.
func offering(port uint16, change ...func(*topo.Offering)) topo.Offering {
	o := topo.Offering{
		Name: "web", VIP: topo.VIP{Addr: vipAddr, Port: port},
		Acceptance: topo.Static, Threshold: 4, Window: 50, Epsilon: 0.1, Workers: 32, Cores: 2,
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

// newAgentRig loads the agent in a namespace of its own where the VIPs and the
// client's addresses are local; all next hops are known.
func newAgentRig(t testing.TB, seen hits, services ...topo.Offering) *agentRig {
	t.Helper()
	return newAgentRigOf(t, seen, 1024, services...)
}

func newAgentRigOf(t testing.TB, seen hits, entries int, services ...topo.Offering) *agentRig {
	t.Helper()
	enter(t)
	for _, a := range []netip.Addr{vipAddr, clientAddr, vip4, client4} {
		addLocal(t, a)
	}
	return loadAgentRig(t, seen, agentConfig(entries, services...), inVirtualTime)
}

func agentConfig(entries int, services ...topo.Offering) *topo.Agent {
	return &topo.Agent{
		Node:     topo.Node{Name: "s1", Locator: serverLocator(here), Interface: device},
		Flows:    topo.FlowTable{Entries: entries, Idle: 5 * time.Minute, Linger: 10 * time.Second},
		Services: services,
	}
}

// loadAgentRig loads the agent into the test's namespace.
func loadAgentRig(t testing.TB, seen hits, cfg *topo.Agent, change func(*ebpf.CollectionSpec) error) *agentRig {
	t.Helper()
	a, err := newAgent(cfg, change)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &agentRig{Agent: a}
	r.rig = rig{plane: &a.plane, prog: a.objs.AgentIn, clock: clockOf(t, a.objs.AgentIn), seen: seen}
	r.out = rig{plane: &a.plane, prog: a.objs.AgentOut, clock: r.rig.clock, seen: seen}
	r.at(t, start)
	err = r.SetNextHops(topo.NextHops{
		netip.PrefixFrom(clientAddr, 128): routerMAC,
		netip.PrefixFrom(client4, 32):     routerMAC,
		lbLocator:                         hopMAC(0xb),
		otherLB:                           hopMAC(0xc),
		serverLocator(2):                  hopMAC(2),
		serverLocator(3):                  hopMAC(3),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func addLocal(t testing.TB, a netip.Addr) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr(netip.PrefixFrom(a, a.BitLen()).String())
	if err == nil {
		if a.Is6() {
			addr.Flags = unix.IFA_F_NODAD // else it is tentative for a while, on lo too
		}
		err = netlink.AddrAdd(lo, addr)
	}
	if err != nil {
		t.Fatalf("add %v to lo: %v", a, err)
	}
	eventually(t, "the route to "+a.String(), func() bool { // the kernel adds it later
		routes, err := netlink.RouteGet(a.AsSlice())
		return err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL
	})
}

// An sr packet: the segments of its route, first to last, and at which it is.
type sr struct {
	in       inner
	to, from topo.MAC
	lb       netip.Prefix
	segments []netip.Addr
	at       int
	class    byte // outer
	hop      byte // outer
	wire     topo.Wire
	key      *topo.Key // of the tag; nil: none
}

// to is an offer, a question or a steered packet for this server and then for
// others, by one function each.
func to(p packet, generation uint16, functions ...byte) sr {
	return toWith(innerTCP(p), generation, functions...)
}

func toWith(in inner, generation uint16, functions ...byte) sr {
	s := sr{in: in, to: hereMAC, from: routerMAC, lb: lbLocator, class: in.class, hop: 63}
	for i, f := range functions {
		s.segments = append(s.segments, sid(serverLocator(here+i), f, generation))
	}
	return s
}

// inserted is s by the papers' wire.
func (s sr) inserted() sr {
	s.wire, s.hop = topo.Insert, s.in.ip[7]
	return s
}

// flagged is s with flags in its SIDs.
func (s sr) flagged(flags byte) sr {
	s.segments = slices.Clone(s.segments)
	for i := range s.segments {
		s.segments[i] = withFlags(s.segments[i], flags)
	}
	return s
}

// signed is s with a tag by one of the farm's keys.
func (s sr) signed(k topo.SignalKey) sr {
	s.segments = slices.Clone(s.segments)
	for i := range s.segments {
		s.segments[i] = withKey(s.segments[i], k.ID)
	}
	s.key = &k.Farm
	return s
}

// source is the sender's address: what its tag covers is what the last receiver
// still knows (bpf/packet/auth.h).
func (s sr) source() netip.Addr {
	if s.key == nil {
		return own(s.lb)
	}
	covered := lastFirst(s.segments)
	switch {
	case s.wire == topo.Insert:
		covered = append([]netip.Addr{s.in.flow.VIP.Addr()}, covered...)
	case len(s.segments) > 1:
		covered = covered[:len(covered)-1]
	}
	return tagged(s.lb, policy.Tag(*s.key, s.in.flow, s.lb, covered))
}

func (s sr) frame() []byte {
	var b []byte
	if s.wire == topo.Insert {
		b = insertedInto(s.source(), s.in, s.segments)
		b[7] = s.hop
	} else {
		b = encapsulated(s.source(), s.in, s.class, s.hop, s.segments)
	}
	if s.at > 0 { // on its way only these change (RFC 8754 §4.3.1.1)
		copy(b[24:40], s.segments[s.at].AsSlice())
		b[40+3] -= byte(s.at)
	}
	return ethernet(s.to, s.from, b)
}

// onward is s after this server passed it on to the next.
func (s sr) onward(hop topo.MAC) []byte {
	s.at++
	s.hop--
	s.to, s.from = hop, hereMAC
	return s.frame()
}

// returned is s after this server gave it back: [lb::nm], by whatever wire it came.
func (s sr) returned(keys ...topo.SignalKey) []byte {
	generation := binary.BigEndian.Uint16(s.segments[s.at].AsSlice()[10:])
	to, from := sid(s.lb, notMine, generation), own(serverLocator(here))
	if len(keys) > 0 {
		to = withKey(to, keys[0].ID)
		from = tagged(serverLocator(here), policy.Tag(keys[0].Server, s.in.flow, serverLocator(here), []netip.Addr{to}))
	}
	return ethernet(hopMAC(0xb), hereMAC, encapsulated(from, s.in, s.in.class, 64, []netip.Addr{to}))
}

const (
	notMine = 0x40
	reject  = 0x4e
)

// delivered is the packet as our own stack must see it.
func delivered(p packet) []byte { return innerTCP(p).delivered() }

func (in inner) delivered() []byte { return in.frame(hereMAC, routerMAC) }

// settled reads the entry of a flow whose client has proved to be there.
func (r *agentRig) settled(t testing.TB, f policy.Flow) (c agentConn, known bool) {
	t.Helper()
	e := connsOf(t, r.Agent).get(t, f)
	return e.conn, e.established
}

// conn reads the agent's entry of a flow.
func (r *agentRig) conn(t testing.TB, f policy.Flow) (c agentConn, known bool) {
	t.Helper()
	e := connsOf(t, r.Agent).get(t, f)
	return e.conn, e.known
}

// mustConn reads an entry that has to be there.
func (r *agentRig) mustConn(t testing.TB, p packet) agentConn {
	t.Helper()
	c, known := r.conn(t, p.flow())
	if !known {
		t.Fatal("the flow has no entry")
	}
	return c
}

// setLoad changes what service 0 is doing.
func (r *agentRig) setLoad(t testing.TB, change func(*agentLoad)) {
	t.Helper()
	var l agentLoad
	if err := r.objs.Loads.Lookup(uint32(0), &l); err != nil {
		t.Fatal(err)
	}
	change(&l)
	if err := r.objs.Loads.Put(uint32(0), l); err != nil {
		t.Fatal(err)
	}
}

// asking reads how many requests of service 0 are in progress.
func (r *agentRig) asking(t testing.TB) uint32 {
	t.Helper()
	l, err := r.Load(0)
	if err != nil {
		t.Fatal(err)
	}
	return l.Asking
}

// byTable makes the agent's own table the truth, so that a test needs no sockets.
func byTable(o *topo.Offering) { o.Owner = topo.Table }

// begin makes the agent take p's flow and the kernel hold its connection, whose
// socket it returns.
func (r *agentRig) begin(t testing.TB, p packet) int {
	t.Helper()
	l := listen(t, p.dst.Port(), 128)
	r.accept(t, p)
	reset(t, l) // listeners must come later
	return established(t, p, p.seq)
}

// acknowledge makes the LB steer the client's first packet after p, its SYN.
func (r *agentRig) acknowledge(t testing.TB, p packet) {
	t.Helper()
	generation := policy.Generation(p.seq)
	p.flags, p.seq = ack, p.seq+1
	r.send(t, to(p, generation, 0xa5).frame()).
		is(t, "first packet", xdpPass, delivered(p), "established", "acknowledged", "steered")
}

// accept makes the agent take the test's flow.
func (r *agentRig) accept(t testing.TB, p packet) {
	t.Helper()
	r.send(t, to(p, policy.Generation(p.seq), 0xcf).frame()).
		is(t, "accept", xdpPass, delivered(p), "accept_force")
}

// skBuff is struct __sk_buff of linux/bpf.h.
type skBuff struct {
	_                 [36]uint32 // len … data_meta
	_, _              uint64     // flow_keys, tstamp
	WireLen, Segments uint32
	_                 uint64 // sk
	_, _              uint32 // gso_size, tstamp_type
	_                 uint64 // hwtstamp
}
