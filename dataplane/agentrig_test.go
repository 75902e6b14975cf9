package dataplane

import (
	"net/netip"
	"testing"
	"time"

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
// signal busy on two cores, unless change says otherwise.
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

// newAgentRig loads the agent in a namespace of its own where the VIP and the
// client's address are local; all next hops are known.
func newAgentRig(t testing.TB, seen hits, services ...topo.Offering) *agentRig {
	t.Helper()
	return newAgentRigOf(t, seen, 1024, services...)
}

func newAgentRigOf(t testing.TB, seen hits, entries int, services ...topo.Offering) *agentRig {
	t.Helper()
	enter(t)
	for _, a := range []netip.Addr{vipAddr, clientAddr} {
		addLocal(t, a)
	}
	a, err := newAgent(&topo.Agent{
		Node:     topo.Node{Name: "s1", Locator: serverLocator(here), Interface: device},
		Flows:    topo.FlowTable{Entries: entries, Idle: 5 * time.Minute, Linger: 10 * time.Second},
		Services: services,
	}, inVirtualTime)
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
		lbLocator:                         hopMAC(0xb),
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
	addr, err := netlink.ParseAddr(netip.PrefixFrom(a, 128).String())
	if err == nil {
		addr.Flags = unix.IFA_F_NODAD // else it is tentative for a while, on lo too
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
	p        packet
	lb       netip.Prefix
	segments []netip.Addr
	at       int
	class    byte // outer
	hop      byte // outer
}

// to is an offer, a question or a steered packet for this server and then for
// others, by one function each.
func to(p packet, generation uint16, functions ...byte) sr {
	s := sr{p: p, lb: lbLocator, class: p.class, hop: 63}
	for i, f := range functions {
		s.segments = append(s.segments, sid(serverLocator(here+i), f, generation))
	}
	return s
}

func (s sr) frame() []byte {
	b := outer(s.lb, s.p.flow(), s.class, s.hop, s.segments, s.p.ip())
	if s.at > 0 { // on its way: H.Encaps.Red changes only these
		copy(b[24:40], s.segments[s.at].AsSlice())
		b[40+3] -= byte(s.at)
	}
	return ethernet(s.p.to, s.p.from, b)
}

// onward is s after this server passed it on to the next.
func (s sr) onward(hop topo.MAC) []byte {
	s.at++
	s.hop--
	s.p.to, s.p.from = hop, hereMAC
	return s.frame()
}

// delivered is the packet as our own stack must see it.
func delivered(p packet) []byte {
	p.to = hereMAC
	return p.frame()
}

// conn reads the agent's entry of a flow.
func (r *agentRig) conn(t testing.TB, f policy.Flow) (c agentConn, known bool) {
	t.Helper()
	var key lbTuple
	key.Client.In6U.U6Addr8, key.Vip.In6U.U6Addr8 = f.Client.Addr().As16(), f.VIP.Addr().As16()
	key.ClientPortBe, key.VipPortBe, key.Protocol = portBits(f.Client.Port()), portBits(f.VIP.Port()), 6
	err := r.objs.Conns.Lookup(key, &c)
	if err != nil && !isMissing(err) {
		t.Fatal(err)
	}
	return c, err == nil
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
