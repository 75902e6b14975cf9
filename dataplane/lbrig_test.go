package dataplane

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"proffer/policy"
	"proffer/topo"
)

var lbKeyOfTests = topo.Key{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// lbRig is the load balancer under test.
type lbRig struct {
	rig
	*LB
	cfg *topo.LB
}

func service(port uint16, d topo.Dispatch, choices, servers int) topo.Service {
	return topo.Service{
		Name: d.String(), Dispatch: d, Choices: choices, Servers: farm(servers),
		VIP: topo.VIP{Addr: vipAddr, Port: port},
	}
}

func hunting(choices, servers int) topo.Service {
	return service(huntPort, topo.Hunt, choices, servers)
}

// newLBRig loads the LB in a namespace of its own; all next hops are known.
func newLBRig(t testing.TB, seen hits, services ...topo.Service) *lbRig {
	t.Helper()
	return newLBRigOf(t, seen, 1024, services...)
}

func newLBRigOf(t testing.TB, seen hits, entries int, services ...topo.Service) *lbRig {
	t.Helper()
	enter(t)
	cfg := &topo.LB{
		Node:         topo.Node{Name: "lb", Locator: lbLocator, Interface: device},
		CandidateKey: lbKeyOfTests,
		Flows:        topo.FlowTable{Entries: entries, Idle: 5 * time.Minute, Linger: 10 * time.Second},
		Services:     services,
	}
	l, err := newLB(cfg, inVirtualTime)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &lbRig{LB: l, cfg: cfg}
	r.rig = rig{plane: &l.plane, prog: l.objs.Lb, clock: clockOf(t, l.objs.Lb), seen: seen}
	r.at(t, start)
	r.resolve(t, 255)
	return r
}

// hopMAC is the neighbour towards server i.
func hopMAC(i int) topo.MAC { return topo.MAC{2, 0, 0, 0, 1, byte(i)} }

// resolve gives the first n servers a next hop each, and the client one.
func (r *lbRig) resolve(t testing.TB, n int) {
	t.Helper()
	hops := topo.NextHops{netip.PrefixFrom(clientAddr, 128): routerMAC}
	for _, s := range r.servers[:min(n, len(r.servers))] {
		i := int(s.Locator.Addr().As16()[7])
		hops[s.Locator] = hopMAC(i)
	}
	if err := r.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
}

// list returns the numbers of the flow's candidates in service svc, in order.
func (r *lbRig) list(svc int, f policy.Flow) []int {
	s := r.cfg.Services[svc]
	return policy.Candidates(policy.Hash(lbKeyOfTests, f), len(s.Servers), s.Choices)
}

// offered is what must leave for a SYN: p offered to the servers, in order.
func offered(p packet, servers []int) []byte {
	return steered(p, servers, policy.Generation(p.seq), func(i int) byte {
		if i == len(servers)-1 {
			return 0xcf
		}
		return 0xca
	})
}

// recovered is what must leave for a packet of an unknown flow.
func recovered(p packet, servers []int) []byte {
	return steered(p, servers, 0, func(int) byte { return 0xe5 })
}

// toOne is what must leave for one server only.
func toOne(p packet, server int, function byte, generation uint16) []byte {
	return steered(p, []int{server}, generation, func(int) byte { return function })
}

func steered(p packet, servers []int, generation uint16, function func(int) byte) []byte {
	segments := make([]netip.Addr, len(servers))
	for i, s := range servers {
		segments[i] = sid(serverLocator(s), function(i), generation)
	}
	f := p.flow()
	p.hop--
	return ethernet(hopMAC(servers[0]), hereMAC, outer(lbLocator, f, p.class, 64, segments, p.ip()))
}

// signal is what server i sends the LB around its answer p.
func signalFrom(i int, p packet, function byte, generation uint16) []byte {
	to := sid(lbLocator, function, generation)
	return ethernet(hereMAC, hopMAC(i), outer(serverLocator(i), p.reversed(), p.class, 63, []netip.Addr{to}, p.ip()))
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
)

// learn makes the LB know that server i took the test's flow.
func (r *lbRig) learn(t testing.TB, i int, isn uint32) {
	t.Helper()
	p := outward(huntPort, syn|ack)
	out := r.send(t, signalFrom(i, p, create, policy.Generation(isn)))
	if out.action != xdpTX || !slices.Contains(out.reasons, "stickiness_created") {
		t.Fatalf("create stickiness: action %d for %v", out.action, out.reasons)
	}
}

// flow reads the entry of a flow.
func (r *lbRig) flow(t testing.TB, f policy.Flow) (e lbFlow, known bool) {
	t.Helper()
	var key lbTuple
	key.Client.In6U.U6Addr8, key.Vip.In6U.U6Addr8 = f.Client.Addr().As16(), f.VIP.Addr().As16()
	key.ClientPortBe, key.VipPortBe, key.Protocol = portBits(f.Client.Port()), portBits(f.VIP.Port()), 6
	err := r.objs.Flows.Lookup(key, &e)
	if err != nil && !isMissing(err) {
		t.Fatal(err)
	}
	return e, err == nil
}

func isMissing(err error) bool { return errors.Is(err, ebpf.ErrKeyNotExist) }
