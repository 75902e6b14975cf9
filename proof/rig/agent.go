package rig

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/dataplane/agent"
	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/topo"
	"proffer/wire"
)

// Agent is the agent of server `here` under test.
type Agent struct {
	Rig
	*agent.Agent
	Out      Rig    // the program on the way out
	attaches func() // tells that the programs are on a link; or nil
}

// Attach is the plane's. Programs on a link serve no later test.
func (r *Agent) Attach() error {
	if r.attaches != nil {
		r.attaches()
	}
	return r.Agent.Attach()
}

const Here = 1

// Offering is a service with a listener of its own choosing: static:4 by the
// load busy on two cores, unless change sets others.
func Offering(port uint16, change ...func(*topo.Offering)) topo.Offering {
	o := topo.Offering{
		Name: "web", VIP: topo.VIP{Addr: VipAddr, Port: port},
		Acceptance: topo.Static, Threshold: 4, Window: 50, Epsilon: 0.1, Workers: 32, Cores: 2,
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

// NewAgent loads the agent in a namespace of its own where the VIPs and the
// client's addresses are local; all next hops are known.
func NewAgent(t testing.TB, seen Hits, services ...topo.Offering) *Agent {
	t.Helper()
	return NewAgentOf(t, seen, 1024, services...)
}

func NewAgentOf(t testing.TB, seen Hits, entries int, services ...topo.Offering) *Agent {
	t.Helper()
	Enter(t)
	for _, a := range []netip.Addr{VipAddr, ClientAddr, Vip4, Client4} {
		AddLocal(t, a)
	}
	return LoadAgent(t, seen, AgentConfig(entries, services...), InVirtualTime)
}

func AgentConfig(entries int, services ...topo.Offering) *topo.Agent {
	return &topo.Agent{
		Node:     topo.Node{Name: "s1", Locator: ServerLocator(Here), Interface: Device},
		Flows:    topo.FlowTable{Entries: entries, Idle: 5 * time.Minute, Linger: 10 * time.Second},
		Services: services,
	}
}

// LoadAgent loads the agent into the test's namespace.
func LoadAgent(t testing.TB, seen Hits, cfg *topo.Agent, change func(*ebpf.CollectionSpec) error) *Agent {
	t.Helper()
	var spec *ebpf.CollectionSpec
	programs, attached := Again(t, agentSpec, cfg.Pin, keeping(&spec, change))
	a, err := agent.NewOf(cfg, programs)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &Agent{Agent: a, attaches: attached}
	r.Rig = Rig{plane: a, Names: a.Names, Prog: a.Objects().AgentIn, Spec: spec, clock: clockOf(t, a.Objects().AgentIn), seen: seen}
	r.Out = Rig{plane: a, Names: a.Names, Prog: a.Objects().AgentOut, clock: r.Rig.clock, seen: seen}
	r.At(t, Start)
	err = r.SetNextHops(topo.NextHops{
		netip.PrefixFrom(ClientAddr, 128): RouterMAC,
		netip.PrefixFrom(Client4, 32):     RouterMAC,
		LbLocator:                         HopMAC(0xb),
		OtherLB:                           HopMAC(0xc),
		ServerLocator(2):                  HopMAC(2),
		ServerLocator(3):                  HopMAC(3),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func AddLocal(t testing.TB, a netip.Addr) {
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
	Eventually(t, "the route to "+a.String(), func() bool { // the kernel adds it later
		routes, err := netlink.RouteGet(a.AsSlice())
		return err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL
	})
}

// An sr packet: the segments of its route, first to last, and at which it is.
type SR struct {
	In       Inner
	to, from topo.MAC
	LB       netip.Prefix
	Segments []netip.Addr
	At       int
	Class    byte // outer
	Hop      byte // outer
	Wire     topo.Wire
	key      *topo.Key // of the tag; nil: none
}

// To is an offer, a question or a steered packet for this server and then for
// others, by one function each.
func To(p Packet, generation uint16, functions ...wire.Function) SR {
	return ToWith(InnerTCP(p), generation, functions...)
}

func ToWith(in Inner, generation uint16, functions ...wire.Function) SR {
	s := SR{In: in, to: HereMAC, from: RouterMAC, LB: LbLocator, Class: in.Class, Hop: 63}
	for i, f := range functions {
		s.Segments = append(s.Segments, SID(ServerLocator(Here+i), f, generation))
	}
	return s
}

// Inserted is s by the papers' wire.
func (s SR) Inserted() SR {
	s.Wire, s.Hop = topo.Insert, s.In.Ip[7]
	return s
}

// Flagged is s with flags in its SIDs.
func (s SR) Flagged(flags wire.Flags) SR {
	s.Segments = slices.Clone(s.Segments)
	for i := range s.Segments {
		s.Segments[i] = WithFlags(s.Segments[i], flags)
	}
	return s
}

// Signed is s with a tag by one of the farm's keys.
func (s SR) Signed(k topo.SignalKey) SR {
	s.Segments = slices.Clone(s.Segments)
	for i := range s.Segments {
		s.Segments[i] = WithKey(s.Segments[i], k.ID)
	}
	s.key = &k.Farm
	return s
}

func (s SR) Frame() []byte {
	route := s.In.Route(wire.Untagged(s.LB, s.In.Flow), s.Class, s.Hop, s.Segments...)
	if s.key != nil {
		route = route.Signed(*s.key, s.In.Flow, s.LB, s.Wire, s.In.Ip)
	}
	b := route.Put(s.Wire, s.In.Ip)
	if s.Wire == topo.Insert {
		b[7] = s.Hop
	}
	if s.At > 0 { // on its way only these change (RFC 8754 §4.3.1.1)
		copy(b[24:40], s.Segments[s.At].AsSlice())
		b[40+3] -= byte(s.At)
	}
	return wire.Frame(s.to, s.from, b)
}

// Onward is s after this server passed it on to the next.
func (s SR) Onward(hop topo.MAC) []byte {
	s.At++
	s.Hop--
	s.to, s.from = hop, HereMAC
	return s.Frame()
}

// Returned is s after this server gave it back: [lb::nm], by whatever wire it came.
func (s SR) Returned(keys ...topo.SignalKey) []byte {
	here := ServerLocator(Here)
	to := wire.SID{Locator: s.LB, Function: wire.NotMine, Generation: wire.ParseSID(s.Segments[s.At]).Generation}
	if len(keys) > 0 {
		to.KeyID = keys[0].ID
	}
	route := s.In.Route(wire.Untagged(here, s.In.Flow), s.In.Class, wire.DefaultHopLimit, to.Addr())
	if len(keys) > 0 {
		route = route.Signed(keys[0].Server, s.In.Flow, here, topo.Encap, s.In.Ip)
	}
	return wire.Frame(HopMAC(0xb), HereMAC, route.Encap(s.In.Ip))
}

// Delivered is the packet as our own stack must see it.
func Delivered(p Packet) []byte { return InnerTCP(p).Delivered() }

func (in Inner) Delivered() []byte { return in.Frame(HereMAC, RouterMAC) }

// Settled reads the entry of an established flow.
func (r *Agent) Settled(t testing.TB, f policy.Flow) (c objects.AgentConn, known bool) {
	t.Helper()
	e := ConnsOf(t, r.Agent).Get(t, f)
	return e.Conn, e.Established
}

// Conn reads the agent's entry of a flow.
func (r *Agent) Conn(t testing.TB, f policy.Flow) (c objects.AgentConn, known bool) {
	t.Helper()
	e := ConnsOf(t, r.Agent).Get(t, f)
	return e.Conn, e.Known
}

// MustConn reads an entry that has to be there.
func (r *Agent) MustConn(t testing.TB, p Packet) objects.AgentConn {
	t.Helper()
	c, known := r.Conn(t, p.Flow())
	if !known {
		t.Fatal("the flow has no entry")
	}
	return c
}

// SetLoad changes the load of service 0.
func (r *Agent) SetLoad(t testing.TB, change func(*objects.AgentLoad)) {
	t.Helper()
	var l objects.AgentLoad
	if err := r.Objects().Loads.Lookup(uint32(0), &l); err != nil {
		t.Fatal(err)
	}
	change(&l)
	if err := r.Objects().Loads.Put(uint32(0), l); err != nil {
		t.Fatal(err)
	}
}

// Asking reads how many requests of service 0 are in progress.
func (r *Agent) Asking(t testing.TB) uint32 {
	t.Helper()
	l, err := r.Load(0)
	if err != nil {
		t.Fatal(err)
	}
	return l.Asking
}

// Inserts makes the service one of `wire: insert`.
func Inserts(o *topo.Offering) { o.Wire = topo.Insert }

// ByTable makes the agent's own table the truth, so that a test needs no sockets.
func ByTable(o *topo.Offering) { o.Owner = topo.Table }

// Begin makes the agent take p's flow and the kernel hold its connection. It returns
// the connection's socket.
func (r *Agent) Begin(t testing.TB, p Packet) int {
	t.Helper()
	l := Listen(t, p.Dst.Port(), 128)
	r.Accept(t, p)
	Reset(t, l) // listeners must come later
	return Established(t, p, p.Seq)
}

// Acknowledge makes the LB steer the client's first packet after p, its wire.SYN.
func (r *Agent) Acknowledge(t testing.TB, p Packet) {
	t.Helper()
	generation := wire.Generation(p.Seq)
	p.Flags, p.Seq = wire.ACK, p.Seq+1
	r.Send(t, To(p, generation, wire.AckStickiness).Frame()).
		Is(t, "first packet", XDPPass, Delivered(p), "established", "acknowledged", "steered")
}

// Accept makes the agent take the test's flow.
func (r *Agent) Accept(t testing.TB, p Packet) {
	t.Helper()
	r.Send(t, To(p, wire.Generation(p.Seq), wire.ConnectForce).Frame()).
		Is(t, "accept", XDPPass, Delivered(p), "accept_force")
}

// SkBuff is struct __sk_buff of linux/bpf.h.
type SkBuff struct {
	_                 [36]uint32 // len … data_meta
	_, _              uint64     // flow_keys, tstamp
	WireLen, Segments uint32
	_                 uint64 // sk
	_, _              uint32 // gso_size, tstamp_type
	_                 uint64 // hwtstamp
}
