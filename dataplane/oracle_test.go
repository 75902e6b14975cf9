package dataplane

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"proffer/proof/oracle"
	"proffer/topo"
	"proffer/wire"
)

// judge holds one real program against the oracle.
type judge struct {
	*rig
	oracle interface {
		Receive([]byte) oracle.Answer
		Known() int
		Forget()
	}
	conns *connTable // the agent's flows
	lines *lineTable // the LB's
	seeds [][]byte
	netns *os.File
	must  map[oracle.Reason]bool // not met yet
}

const rememberAtMost = 1 << 15 // half the program's table, which must not fill

// verdict passes one frame to both and returns how they disagree.
func (j *judge) verdict(t testing.TB, frame []byte) error {
	t.Helper()
	if j.oracle.Known() > rememberAtMost {
		j.forget(t)
	}
	got, want := j.run(t, frame), j.oracle.Receive(frame)
	delete(j.must, want.Why)
	if err := agree(got, frame, want); err != nil {
		return fmt.Errorf("%w\nframe %x\n got action %d, %x\nwant %v (%s), %x",
			err, frame, got.action, got.frame, want.Action, want.Why, want.Frame)
	}
	if got.action == xdpTX {
		return decodes(got.frame)
	}
	return nil
}

// forget empties both tables.
func (j *judge) forget(t testing.TB) {
	t.Helper()
	j.oracle.Forget()
	if j.lines != nil {
		j.lines.empty(t)
	}
	if j.conns != nil {
		j.conns.empty(t)
	}
}

// agree compares action and bytes; bytes of a dropped frame are nobody's.
func agree(got outcome, frame []byte, want oracle.Answer) error {
	untouched := got.action == xdpPass && bytes.Equal(got.frame, frame)
	switch {
	case want.Either && (untouched || got.action == xdpDrop),
		want.Action == oracle.Pass && untouched,
		want.Action == oracle.Drop && got.action == xdpDrop,
		want.Action == oracle.Transmit && got.action == xdpTX && bytes.Equal(got.frame, want.Frame),
		want.Action == oracle.Deliver && got.action == xdpPass && bytes.Equal(got.frame, want.Frame):
		return nil
	}
	return fmt.Errorf("the program and the oracle disagree")
}

// decodes checks that a stranger's decoder understands what was transmitted, down
// to the transport header, and that every length is exact.
func decodes(frame []byte) error {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	for i, l := range p.Layers() {
		switch l := l.(type) {
		case *layers.IPv6:
			if int(l.Length) > len(l.Payload) {
				return fmt.Errorf("IPv6 length %d of %d bytes: %x", l.Length, len(l.Payload), frame)
			}
		case *layers.IPv4:
			if int(l.Length) > 20+len(l.Payload) {
				return fmt.Errorf("IPv4 length %d of %d bytes: %x", l.Length, 20+len(l.Payload), frame)
			}
		case *layers.Ethernet, *layers.IPv6Routing:
		case *layers.TCP, *layers.UDP, *layers.ICMPv4, *layers.ICMPv6:
			return nil
		default:
			if i > 1 && l.LayerType() == gopacket.LayerTypeDecodeFailure {
				return nil // options or a payload that are the client's own nonsense
			}
			return fmt.Errorf("transmitted %v (%v): %x", l.LayerType(), p.ErrorLayer(), frame)
		}
	}
	return fmt.Errorf("nothing inside: %x", frame)
}

// here moves the calling goroutine, for good, into the rig's namespace.
func (j *judge) here(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Setns(int(j.netns.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatalf("enter the namespace: %v", err)
	}
}

func currentNetns(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// judgedHops has a way to everywhere but one network.
func judgedHops() topo.NextHops {
	hops := topo.NextHops{
		netip.MustParsePrefix("::/0"):               routerMAC,
		netip.MustParsePrefix("0.0.0.0/0"):          routerMAC,
		netip.MustParsePrefix("2001:db8:dead::/48"): {},
	}
	for i := range 8 {
		hops[serverLocator(i)] = hopMAC(i)
	}
	return hops
}

// judgedServices: many candidates and few, in all their wires and families; a
// history, transit, a service without flows, and one of datagrams.
func judgedServices() []topo.Service {
	many := hunting(3, 8, func(s *topo.Service) {
		s.History = []topo.Version{{Version: 1, Servers: farm(8)[2:7]}, {Version: 0, Servers: farm(9)[5:]}}
	})
	four := hunting(2, 8, over4)
	inserted := service(90, topo.Hunt, 4, 8)
	inserting(&inserted)
	few := service(91, topo.Hunt, 4, 2)
	viaTransit(1)(&few)
	datagrams := service(92, topo.Hunt, 2, 8)
	overUDP(&datagrams)
	datagrams.History = []topo.Version{{Version: 1, Servers: farm(8)[4:]}}
	datagrams4 := datagrams
	over4(&datagrams4)
	return []topo.Service{many, four, inserted, few, datagrams, datagrams4, service(81, topo.Single, 1, 5)}
}

// newLBJudge holds the LB, with these keys, against the oracle.
func newLBJudge(t testing.TB, keys []topo.SignalKey) *judge {
	t.Helper()
	enter(t)
	cfg := lbConfig(judgedServices()...)
	cfg.Flows.Entries = 2 * rememberAtMost
	cfg.Keys = keys
	r := lbRigOf(t, hits{}, cfg)
	if err := r.SetNextHops(judgedHops()); err != nil {
		t.Fatal(err)
	}
	more := []oracle.Reason{
		oracle.SegmentsLeft, oracle.Stranger, oracle.Offered, oracle.Asked, oracle.Steered, oracle.Unwrapped,
		oracle.GivenBack, oracle.Rejected, oracle.GoneOn,
	}
	if keys == nil {
		more = append(more, oracle.Conflict, oracle.ExtHeader, oracle.TooBig, oracle.SmallMTU, oracle.Echoed,
			oracle.ToldTooBig, oracle.BadTooBig)
	} else {
		more = append(more, oracle.BadTag)
	}
	return &judge{
		must: reasons(more...),
		rig:  &r.rig, lines: &r.table, seeds: lbSeeds(), netns: currentNetns(t),
		oracle: &oracle.LB{
			Node: oracle.Node{Locator: lbLocator, MAC: hereMAC, MTU: mtu, Neighbours: judgedHops()},
			Key:  r.table.key, Services: cfg.Services, Keys: keys,
			ServerKey: func(k topo.SignalKey, locator netip.Prefix) topo.Key { return wire.ServerKey(k.Server, locator) },
		},
	}
}

// newSignedLBJudge: an LB with keys, and signals of which most carry a good tag.
func newSignedLBJudge(t testing.TB) *judge {
	j := newLBJudge(t, []topo.SignalKey{oldKeys, newKeys})
	j.seeds = signalSeeds(func(server int, p packet, to netip.Addr, change ...func(*route)) []byte {
		k := []topo.SignalKey{oldKeys, newKeys}[server]
		return signalTo(server, p, withKey(to, k.ID), append(change, signedBy(wire.ServerKey(k.Server, serverLocator(server))))...)
	})
	for _, p := range []packet{inward(huntPort, ack), inward(90, syn), datagram(92, "x")} {
		to := withKey(sid(lbLocator, goOn, 5), oldKeys.ID)
		back := route{from: lbLocator, segments: []netip.Addr{to}, hop: 63, key: &oldKeys.Farm}
		j.seeds = append(j.seeds, p.frame(), ethernet(hereMAC, routerMAC, back.around(p)))
	}
	return j
}

// newAgentJudge: a service that takes what it can, one that takes what it
// must, one that nobody listens for.
func newAgentJudge(t testing.TB) *judge {
	t.Helper()
	eager := offering(huntPort, func(o *topo.Offering) { o.Acceptance = topo.Always })
	busy := offering(81, func(o *topo.Offering) { o.Threshold = 0 })
	r := newAgentRigOf(t, hits{}, 2*rememberAtMost, eager, busy, offering(82))
	listen(t, huntPort, 128)
	listen(t, 81, 128)
	if err := r.SetNextHops(judgedHops()); err != nil {
		t.Fatal(err)
	}
	return &judge{
		must: reasons(oracle.NotSYN, oracle.SegmentsLeft, oracle.Stale, oracle.GivenBack, oracle.Asked, oracle.Forwarded, oracle.NotForUs),
		rig:  &r.rig, conns: connsOf(t, r.Agent), seeds: agentSeeds(), netns: currentNetns(t),
		oracle: &oracle.Agent{
			Node: oracle.Node{Locator: serverLocator(here), MAC: hereMAC, MTU: mtu, Neighbours: judgedHops()},
			Services: map[topo.VIP]oracle.Offering{
				eager.VIP:                 {Listening: true, Takes: true},
				busy.VIP:                  {Listening: true},
				{Addr: vipAddr, Port: 82}: {},
			},
		},
	}
}

// TestSignedLBOracle: the same with keys.
func TestSignedLBOracle(t *testing.T) { newSignedLBJudge(t).mutate(t) }

// TestLBOracle and TestAgentOracle mutate good frames, always the same way.
func TestLBOracle(t *testing.T)    { newLBJudge(t, nil).mutate(t) }
func TestAgentOracle(t *testing.T) { newAgentJudge(t).mutate(t) }

func (j *judge) mutate(t *testing.T) {
	m := newMutator(t, j.seeds)
	frames := len(m.plan) + 200_000
	for i := range frames {
		frame := m.next()
		if err := j.verdict(t, frame); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	for why := range j.must {
		t.Errorf("no frame of %d met %q: the mutator is too tame", frames, why)
	}
}

// reasons that the mutated frames of each program must meet.
func reasons(more ...oracle.Reason) map[oracle.Reason]bool {
	must := map[oracle.Reason]bool{}
	for _, why := range append(more, oracle.NotForUs, oracle.Truncated, oracle.BadTransport, oracle.BadSRH, oracle.BadTLV,
		oracle.NotEncaps, oracle.BadFunction, oracle.NotOurService, oracle.HopLimit, oracle.Congested, oracle.NoNeighbour) {
		must[why] = true
	}
	return must
}

// FuzzLB and FuzzAgent let Go find what the mutator does not.
func FuzzLB(f *testing.F)    { newLBJudge(f, nil).fuzz(f) }
func FuzzAgent(f *testing.F) { newAgentJudge(f).fuzz(f) }

func (j *judge) fuzz(f *testing.F) {
	for _, s := range j.seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 3000 {
			return // no frame of this length reaches a program here
		}
		j.here(t)
		if err := j.verdict(t, frame); err != nil {
			t.Error(err)
		}
	})
}
