package rig

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/dataplane/lb"
	"proffer/policy"
	"proffer/table"
	"proffer/topo"
	"proffer/wire"
)

var CandidateKeyOfTests = topo.Key{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// LB is the load balancer under test.
type LB struct {
	Table LineTable
	Rig
	*lb.LB
	Cfg       *topo.LB
	retries   *ebpf.Memory
	Remembers bool   // packets that came before, from one send to the next
	attaches  func() // tells that the programs are on a link; or nil
}

const BucketsOfTests = 251

func Service(port uint16, d topo.Dispatch, choices, servers int) topo.Service {
	return topo.Service{
		Name: d.String(), Dispatch: d, Choices: choices, Servers: Farm(servers), Buckets: BucketsOfTests,
		VIP: topo.VIP{Addr: VipAddr, Port: port},
	}
}

func Hunting(choices, servers int, change ...func(*topo.Service)) topo.Service {
	svc := Service(HuntPort, topo.Hunt, choices, servers)
	for _, c := range change {
		c(&svc)
	}
	return svc
}

// Send is rig.send to an LB that has forgotten earlier packets, unless it remembers:
// most tests send one packet many times.
func (r *LB) Send(t testing.TB, frame []byte) Outcome {
	t.Helper()
	if !r.Remembers {
		r.ForgetRetries(t)
	}
	return r.Rig.Send(t, frame)
}

func (r *LB) ForgetRetries(t testing.TB) {
	t.Helper()
	if _, err := r.retries.WriteAt(zeros[:r.retries.Size()], 0); err != nil {
		t.Fatal(err)
	}
}

// Variants of a service.
func Inserting(s *topo.Service) { s.Wire = topo.Insert }
func Over4(s *topo.Service)     { s.VIP.Addr = Vip4 }
func OverUDP(s *topo.Service)   { s.VIP.Protocol = topo.UDP }

// ViaTransit puts n transit SIDs before the servers.
func ViaTransit(n int) func(*topo.Service) {
	return func(s *topo.Service) {
		for i := range n {
			s.Via = append(s.Via, Transit(i))
		}
	}
}

// Members makes every server one that may have any flow: each was alone in the pool once.
func Members(s *topo.Service) {
	for i := range s.Servers {
		s.History = append(s.History, topo.Version{Version: len(s.Servers) - i, Servers: s.Servers[i : i+1]})
	}
}

func Transit(i int) netip.Addr {
	return SID(netip.MustParsePrefix("fd00:0:0:7::/64"), 0xe, uint16(i+1))
}

var TransitMAC = topo.MAC{2, 0, 0, 0, 2, 0}

// LBConfig is an LB of these services without keys.
func LBConfig(services ...topo.Service) *topo.LB {
	return &topo.LB{
		Node:         topo.Node{Name: "lb", Locator: LbLocator, Interface: Device},
		CandidateKey: CandidateKeyOfTests,
		Flows:        topo.FlowTable{Entries: 1024, Idle: 5 * time.Minute, Linger: 10 * time.Second},
		Services:     services,
	}
}

// NewLB loads the LB in a namespace of its own; all next hops are known.
func NewLB(t testing.TB, seen Hits, services ...topo.Service) *LB {
	t.Helper()
	Enter(t)
	return LoadLB(t, seen, LBConfig(services...))
}

// NewLimitedLB is NewLB with the limits of the cost of packets.
func NewLimitedLB(t testing.TB, seen Hits, services ...topo.Service) *LB {
	t.Helper()
	Enter(t)
	return loadLB(t, seen, LBConfig(services...), Limited)
}

// LoadLB loads the LB in the namespace where the test is.
func LoadLB(t testing.TB, seen Hits, cfg *topo.LB) *LB {
	t.Helper()
	return loadLB(t, seen, cfg, InVirtualTime)
}

// LoadLBWith is LoadLB with another change of the programs before they are loaded.
func LoadLBWith(t testing.TB, seen Hits, cfg *topo.LB, change func(*ebpf.CollectionSpec) error) *LB {
	t.Helper()
	return loadLB(t, seen, cfg, change)
}

func loadLB(t testing.TB, seen Hits, cfg *topo.LB, change func(*ebpf.CollectionSpec) error) *LB {
	t.Helper()
	var spec *ebpf.CollectionSpec
	programs, attached := Again(t, lbSpec, cfg.Pin, keeping(&spec, change))
	l, err := lb.NewOf(cfg, programs)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	r := LBAround(t, seen, l, cfg)
	r.Spec, r.attaches = spec, attached
	return r
}

// Attach is the plane's. Programs on a link serve no later test.
func (r *LB) Attach() error {
	if r.attaches != nil {
		r.attaches()
	}
	return r.LB.Attach()
}

// LBAround is a rig of an LB that the caller closes.
func LBAround(t testing.TB, seen Hits, l *lb.LB, cfg *topo.LB) *LB {
	t.Helper()
	r := &LB{LB: l, Cfg: cfg, retries: PagesOf(t, l.Objects().Syns), Table: TableOf(t, l, cfg)}
	r.Rig = Rig{plane: l, Names: l.Names, Prog: l.Objects().Lb, clock: clockOf(t, l.Objects().Lb), seen: seen}
	r.At(t, Start)
	r.Resolve(t, 255)
	return r
}

// Reconfigure gives the running LB other services.
func (r *LB) Reconfigure(t testing.TB, services ...topo.Service) {
	t.Helper()
	r.Cfg.Services = services
	if err := r.Configure(r.Cfg); err != nil {
		t.Fatal(err)
	}
	r.Resolve(t, 255)
}

// HopMAC is the neighbour towards server i.
func HopMAC(i int) topo.MAC { return topo.MAC{2, 0, 0, 0, 1, byte(i)} }

// NumberOf is the number of a server of the farm, by its locator or the end of its address.
func NumberOf(s *topo.Server) int {
	if s.Locator.IsValid() {
		return int(s.Locator.Addr().As16()[7])
	}
	return int(s.Address.As16()[15])
}

// Resolve gives the first n servers a next hop each, and the clients one.
func (r *LB) Resolve(t testing.TB, n int) {
	t.Helper()
	hops := topo.NextHops{}
	for _, svc := range r.Cfg.Services {
		for _, s := range svc.Servers {
			if at := s.Locator; len(hops) < n && at.IsValid() {
				hops[at] = HopMAC(NumberOf(&s))
			} else if len(hops) < n {
				hops[netip.PrefixFrom(s.Address, s.Address.BitLen())] = HopMAC(NumberOf(&s))
			}
		}
	}
	hops[netip.PrefixFrom(ClientAddr, 128)] = RouterMAC
	hops[netip.PrefixFrom(Client4, 32)] = RouterMAC
	hops[netip.MustParsePrefix("fd00:0:0:7::/64")] = TransitMAC
	if err := r.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
}

// List returns the flow's candidates in service svc, in order: the server
// numbers of farm.
func (r *LB) List(t testing.TB, svc int, f policy.Flow) []int {
	t.Helper()
	return Candidates(t, &r.Cfg.Services[svc], r.Cfg.Services[svc].Servers, f)
}

// Union lists the servers that may have the flow: its candidates of today, then those of earlier
// pools, the latest first, that are still in the farm.
func (r *LB) Union(t testing.TB, svc int, f policy.Flow) []int {
	t.Helper()
	s := &r.Cfg.Services[svc]
	union := r.List(t, svc, f)
	for _, v := range s.History {
		for _, i := range Candidates(t, s, v.Servers, f) {
			if !slices.Contains(union, i) && slices.Contains(s.Servers, Farm(i + 1)[i]) {
				union = append(union, i)
			}
		}
	}
	return union
}

// Candidates in one of the pools of a service.
func Candidates(t testing.TB, svc *topo.Service, pool []topo.Server, f policy.Flow) (list []int) {
	t.Helper()
	tab, err := table.Of(svc, pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range tab.Lookup(policy.NewDigestKey(CandidateKeyOfTests).Digest(f)) {
		list = append(list, NumberOf(&pool[i]))
	}
	return list
}

const ServerISN = 9_000_000

// SynAck is the answer to the first packet of the test's flow.
func SynAck(port uint16) Packet {
	p := Outward(port, wire.SYN|wire.ACK)
	p.Seq, p.Ack = ServerISN, ClientISN+1
	return p
}

// Accepted makes the LB know that server i took the flow of p, its first packet.
func (r *LB) Accepted(t testing.TB, i int, p Packet) {
	t.Helper()
	generation := wire.Generation(p.Seq)
	if p.Protocol == topo.UDP {
		generation = 1
	}
	answer := p.Reply(wire.SYN | wire.ACK)
	answer.Seq, answer.Ack = ServerISN, p.Seq+1
	out := r.Send(t, SignalFrom(i, answer, wire.CreateStickiness, generation, r.wireOf(p)))
	if out.Action != XDPTX || !slices.Contains(out.Reasons, "stickiness_created") {
		t.Fatalf("create stickiness: action %d for %v", out.Action, out.Reasons)
	}
}

// wireOf makes a signal about p's flow travel as its service wants it.
func (r *LB) wireOf(p Packet) func(*Route) {
	at := topo.VIP{Addr: p.Dst.Addr(), Port: p.Dst.Port(), Protocol: p.Protocol}
	i := slices.IndexFunc(r.Cfg.Services, func(s topo.Service) bool { return s.VIP == at })
	return func(w *Route) { w.Insert = i >= 0 && r.Cfg.Services[i].Wire == topo.Insert }
}

// Confirm is the client's wire.ACK to that.
func (r *LB) Confirm(t testing.TB, p Packet) {
	t.Helper()
	p.Flags, p.Seq, p.Ack = wire.ACK, p.Seq+1, ServerISN+1
	out := r.Send(t, p.Frame())
	if out.Action != XDPTX || !slices.Contains(out.Reasons, "flow_established") {
		t.Fatalf("confirm: action %d for %v", out.Action, out.Reasons)
	}
}

// Learn makes server i have the test's flow, confirmed.
func (r *LB) Learn(t testing.TB, i int, isn uint32) {
	t.Helper()
	p := Inward(HuntPort, wire.SYN)
	p.Seq = isn
	r.Accepted(t, i, p)
	r.Confirm(t, p)
}

// Flow reads the entry of a flow.
func (r *LB) Flow(t testing.TB, f policy.Flow) (e Flow, known bool) {
	t.Helper()
	return r.Table.Get(t, f).Flow()
}

// Embryonic reads the entry of a flow that its client has not confirmed.
func (r *LB) Embryonic(t testing.TB, f policy.Flow) (e Embryonic, known bool) {
	t.Helper()
	return r.Table.Get(t, f).Embryonic()
}

func IsMissing(err error) bool { return errors.Is(err, ebpf.ErrKeyNotExist) }

// Lean is a service over a farm that stands still, in which half of the servers
// drain: the servers that take flows differ from the servers that the LB knows.
func Lean(upper bool, choices int, change ...func(*topo.Service)) topo.Service {
	drain := func(s *topo.Service) {
		for i := range s.Servers {
			if (i < 6) == upper {
				s.Servers[i].Weight = 0
			}
		}
	}
	return Hunting(choices, 12, append(change, drain)...)
}

func At81(s *topo.Service) { s.VIP.Port = 81 }

// KnowFarm writes the next hops of n servers, be they there or not.
func (r *LB) KnowFarm(t testing.TB, n int) {
	t.Helper()
	hops := topo.NextHops{netip.PrefixFrom(ClientAddr, 128): RouterMAC}
	for i := range n {
		hops[ServerLocator(i)] = HopMAC(i)
	}
	if err := r.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
}

// Two generations of keys, as LBs have them.
var (
	OldKeys = topo.SignalKey{ID: 7, Farm: topo.Key{7, 1}, Server: topo.Key{7, 2}}
	NewKeys = topo.SignalKey{ID: 8, Farm: topo.Key{8, 1}, Server: topo.Key{8, 2}}
)
