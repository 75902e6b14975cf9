package dataplane

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/policy"
	"proffer/table"
	"proffer/topo"
)

var candidateKeyOfTests = topo.Key{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// lbRig is the load balancer under test.
type lbRig struct {
	table lineTable
	rig
	*LB
	cfg       *topo.LB
	retries   *ebpf.Memory
	remembers bool // packets that came before, from one send to the next
}

const bucketsOfTests = 251

func service(port uint16, d topo.Dispatch, choices, servers int) topo.Service {
	return topo.Service{
		Name: d.String(), Dispatch: d, Choices: choices, Servers: farm(servers), Buckets: bucketsOfTests,
		VIP: topo.VIP{Addr: vipAddr, Port: port},
	}
}

func hunting(choices, servers int, change ...func(*topo.Service)) topo.Service {
	svc := service(huntPort, topo.Hunt, choices, servers)
	for _, c := range change {
		c(&svc)
	}
	return svc
}

// send is rig.send to an LB that has forgotten what it saw, unless it remembers:
// most tests send one packet many times.
func (r *lbRig) send(t testing.TB, frame []byte) outcome {
	t.Helper()
	if !r.remembers {
		r.forgetRetries(t)
	}
	return r.rig.send(t, frame)
}

func (r *lbRig) forgetRetries(t testing.TB) {
	t.Helper()
	if _, err := r.retries.WriteAt(make([]byte, r.retries.Size()), 0); err != nil {
		t.Fatal(err)
	}
}

// What a service may be beside.
func inserting(s *topo.Service) { s.Wire = topo.Insert }
func over4(s *topo.Service)     { s.VIP.Addr = vip4 }
func overUDP(s *topo.Service)   { s.VIP.Protocol = topo.UDP }

// viaTransit puts n transit SIDs before the servers.
func viaTransit(n int) func(*topo.Service) {
	return func(s *topo.Service) {
		for i := range n {
			s.Via = append(s.Via, transit(i))
		}
	}
}

func transit(i int) netip.Addr {
	return sid(netip.MustParsePrefix("fd00:0:0:7::/64"), 0xe, uint16(i+1))
}

var transitMAC = topo.MAC{2, 0, 0, 0, 2, 0}

// lbConfig is an LB of these services without keys.
func lbConfig(services ...topo.Service) *topo.LB {
	return &topo.LB{
		Node:         topo.Node{Name: "lb", Locator: lbLocator, Interface: device},
		CandidateKey: candidateKeyOfTests,
		Flows:        topo.FlowTable{Entries: 1024, Idle: 5 * time.Minute, Linger: 10 * time.Second},
		Services:     services,
	}
}

// newLBRig loads the LB in a namespace of its own; all next hops are known.
func newLBRig(t testing.TB, seen hits, services ...topo.Service) *lbRig {
	t.Helper()
	enter(t)
	return lbRigOf(t, seen, lbConfig(services...))
}

// lbRigOf loads the LB in the namespace where the test is.
func lbRigOf(t testing.TB, seen hits, cfg *topo.LB) *lbRig {
	t.Helper()
	l, err := newLB(cfg, inVirtualTime)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return rigAround(t, seen, l, cfg)
}

// rigAround is a rig of an LB that somebody else closes.
func rigAround(t testing.TB, seen hits, l *LB, cfg *topo.LB) *lbRig {
	t.Helper()
	r := &lbRig{LB: l, cfg: cfg, retries: pagesOf(t, l.objs.Syns), table: tableOf(t, l, cfg)}
	r.rig = rig{plane: &l.plane, prog: l.objs.Lb, clock: clockOf(t, l.objs.Lb), seen: seen}
	r.at(t, start)
	r.resolve(t, 255)
	return r
}

// apply gives the running LB other services.
func (r *lbRig) apply(t testing.TB, services ...topo.Service) {
	t.Helper()
	r.cfg.Services = services
	if err := r.Apply(r.cfg); err != nil {
		t.Fatal(err)
	}
	r.resolve(t, 255)
}

// hopMAC is the neighbour towards server i.
func hopMAC(i int) topo.MAC { return topo.MAC{2, 0, 0, 0, 1, byte(i)} }

// resolve gives the first n servers a next hop each, and the clients one.
func (r *lbRig) resolve(t testing.TB, n int) {
	t.Helper()
	hops := topo.NextHops{
		netip.PrefixFrom(clientAddr, 128):        routerMAC,
		netip.PrefixFrom(client4, 32):            routerMAC,
		netip.MustParsePrefix("fd00:0:0:7::/64"): transitMAC,
	}
	for _, s := range r.servers[:min(n, len(r.servers))] {
		i := int(s.Locator.Addr().As16()[7])
		hops[s.Locator] = hopMAC(i)
	}
	if err := r.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
}

// list returns the flow's candidates in service svc, in order: the server
// numbers of farm.
func (r *lbRig) list(t testing.TB, svc int, f policy.Flow) []int {
	t.Helper()
	return candidates(t, &r.cfg.Services[svc], r.cfg.Services[svc].Servers, f)
}

// union is who may have the flow: its candidates of today, then those of earlier
// pools, the latest first, who are still in the farm.
func (r *lbRig) union(t testing.TB, svc int, f policy.Flow) []int {
	t.Helper()
	s := &r.cfg.Services[svc]
	union := r.list(t, svc, f)
	for _, v := range s.History {
		for _, i := range candidates(t, s, v.Servers, f) {
			if !slices.Contains(union, i) && slices.Contains(s.Servers, farm(i + 1)[i]) {
				union = append(union, i)
			}
		}
	}
	return union
}

// candidates in one of the pools of a service.
func candidates(t testing.TB, svc *topo.Service, pool []topo.Server, f policy.Flow) (list []int) {
	t.Helper()
	tab, err := table.Of(svc, pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range tab.Lookup(policy.NewDigestKey(candidateKeyOfTests).Digest(f)) {
		list = append(list, int(pool[i].Locator.Addr().As16()[7]))
	}
	return list
}

// ask makes a segment for each of the servers.
func ask(function byte, generation uint16, servers ...int) (segments []netip.Addr) {
	for _, s := range servers {
		segments = append(segments, sid(serverLocator(s), function, generation))
	}
	return segments
}

// offer asks all but the last whether they would take p, with these flags.
func offer(p packet, flags byte, servers ...int) (segments []netip.Addr) {
	segments = ask(0xca, policy.Generation(p.seq), servers...)
	last := len(segments) - 1
	segments[last] = sid(serverLocator(servers[last]), 0xcf, policy.Generation(p.seq))
	for i := range segments {
		segments[i] = withFlags(segments[i], flags)
	}
	return segments
}

// sent is what must leave for a client's packet: along the segments, towards the
// first of which is the neighbour hop.
func sent(p packet, hop topo.MAC, segments []netip.Addr, change ...func(*route)) []byte {
	r := route{from: lbLocator, segments: segments, hop: 64}
	for _, c := range change {
		c(&r)
	}
	p.hop--
	return ethernet(hop, hereMAC, r.around(p))
}

func insert(r *route) { r.insert = true }

// signedBy makes a route carry the tag of a key.
func signedBy(key topo.Key) func(*route) { return func(r *route) { r.key = &key } }

// offered is what must leave for a SYN: p offered to the servers, in order.
func offered(p packet, servers []int) []byte {
	return sent(p, hopMAC(servers[0]), offer(p, 0, servers...))
}

// recovered is what must leave for a packet of an unknown flow.
func recovered(p packet, servers []int) []byte {
	return sent(p, hopMAC(servers[0]), ask(0xe5, 0, servers...))
}

// toOne is what must leave for one server only.
func toOne(p packet, server int, function byte, generation uint16) []byte {
	return sent(p, hopMAC(server), ask(function, generation, server))
}

// signalFrom is what server i sends the LB around its answer p, or around a
// client's packet that it gives back.
func signalFrom(i int, p packet, function byte, generation uint16, change ...func(*route)) []byte {
	return signalTo(i, p, sid(lbLocator, function, generation), change...)
}

func signalTo(i int, p packet, to netip.Addr, change ...func(*route)) []byte {
	function := to.As16()[9]
	r := route{from: serverLocator(i), segments: []netip.Addr{to}, hop: 63, back: function == create || function == remove}
	for _, c := range change {
		c(&r)
	}
	return ethernet(hereMAC, hopMAC(i), r.around(p))
}

// unwrapped is what must leave for the client.
func unwrapped(p packet) []byte {
	p.hop--
	p.to, p.from = routerMAC, hereMAC
	return p.frame()
}

const (
	create = 0xc5
	remove = 0xf5
	goOn   = 0xe5
)

const serverISN = 9_000_000

// synAck is the answer to the first packet of the test's flow.
func synAck(port uint16) packet {
	p := outward(port, syn|ack)
	p.seq, p.ack = serverISN, clientISN+1
	return p
}

// accepted makes the LB know that server i took the flow of p, its first packet.
func (r *lbRig) accepted(t testing.TB, i int, p packet) {
	t.Helper()
	generation := policy.Generation(p.seq)
	if p.protocol == topo.UDP {
		generation = 1
	}
	answer := p.reply(syn | ack)
	answer.seq, answer.ack = serverISN, p.seq+1
	out := r.send(t, signalFrom(i, answer, create, generation))
	if out.action != xdpTX || !slices.Contains(out.reasons, "stickiness_created") {
		t.Fatalf("create stickiness: action %d for %v", out.action, out.reasons)
	}
}

// confirm is the client's ACK to that.
func (r *lbRig) confirm(t testing.TB, p packet) {
	t.Helper()
	p.flags, p.seq, p.ack = ack, p.seq+1, serverISN+1
	out := r.send(t, p.frame())
	if out.action != xdpTX || !slices.Contains(out.reasons, "flow_established") {
		t.Fatalf("confirm: action %d for %v", out.action, out.reasons)
	}
}

// learn makes server i have the test's flow, confirmed.
func (r *lbRig) learn(t testing.TB, i int, isn uint32) {
	t.Helper()
	p := inward(huntPort, syn)
	p.seq = isn
	r.accepted(t, i, p)
	r.confirm(t, p)
}

// flow reads the entry of a flow.
func (r *lbRig) flow(t testing.TB, f policy.Flow) (e lbFlow, known bool) {
	t.Helper()
	return r.table.get(t, f).flow()
}

// embryo reads the entry of a flow that its client has not confirmed.
func (r *lbRig) embryo(t testing.TB, f policy.Flow) (e lbEmbryo, known bool) {
	t.Helper()
	return r.table.get(t, f).embryo()
}

func isMissing(err error) bool { return errors.Is(err, ebpf.ErrKeyNotExist) }
