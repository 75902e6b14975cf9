package oracle_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"proffer/proof/oracle"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// judge holds one real program against the oracle.
type judge struct {
	*rig.Rig
	oracle interface {
		Receive([]byte) oracle.Answer
		Known() int
		Forget()
	}
	conns *rig.ConnTable // the agent's flows
	lines *rig.LineTable // the LB's
	seeds [][]byte
	netns *os.File
	must  map[oracle.Reason]bool // not met yet

	programs map[string]*ebpf.Program // of the frame's way
}

const rememberAtMost = 1 << 15 // half the program's table, which must not fill

// verdict passes one frame to both and returns how they disagree.
func (j *judge) verdict(t testing.TB, frame []byte) error {
	t.Helper()
	if j.oracle.Known() > rememberAtMost {
		j.forget(t)
	}
	got, want := j.Run(t, frame), j.oracle.Receive(frame)
	delete(j.must, want.Why)
	if err := agree(got, frame, want); err != nil {
		return fmt.Errorf("%w\nframe %x\n got action %d, %x\nwant %v (%s), %x",
			err, frame, got.Action, got.Frame, want.Action, want.Why, want.Frame)
	}
	if got.Action == rig.XDPTX {
		return decodes(got.Frame)
	}
	return nil
}

// forget empties both tables.
func (j *judge) forget(t testing.TB) {
	t.Helper()
	j.oracle.Forget()
	if j.lines != nil {
		j.lines.Empty(t)
	}
	if j.conns != nil {
		j.conns.Empty(t)
	}
}

// agree compares action and bytes; bytes of a dropped frame do not matter.
func agree(got rig.Outcome, frame []byte, want oracle.Answer) error {
	untouched := got.Action == rig.XDPPass && bytes.Equal(got.Frame, frame)
	switch {
	case want.Either && (untouched || got.Action == rig.XDPDrop),
		want.Action == oracle.Pass && untouched,
		want.Action == oracle.Drop && got.Action == rig.XDPDrop,
		want.Action == oracle.Transmit && got.Action == rig.XDPTX && bytes.Equal(got.Frame, want.Frame),
		want.Action == oracle.Deliver && got.Action == rig.XDPPass && bytes.Equal(got.Frame, want.Frame):
		return nil
	}
	return fmt.Errorf("the program and the oracle disagree")
}

// decodes checks that an independent decoder understands the transmitted frame, down
// to the transport header, and that every length is exact.
func decodes(frame []byte) error {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	for i, l := range p.Layers() {
		switch l := l.(type) {
		case *layers.IPv6:
			options := 0 // hop by hop, which the decoder takes from the payload
			if l.HopByHop != nil {
				options = l.HopByHop.ActualLength
			}
			if int(l.Length) > options+len(l.Payload) {
				return fmt.Errorf("IPv6 length %d of %d bytes: %x", l.Length, len(l.Payload), frame)
			}
		case *layers.IPv4:
			if int(l.Length) > 4*int(l.IHL)+len(l.Payload) {
				return fmt.Errorf("IPv4 length %d of %d bytes: %x", l.Length, 20+len(l.Payload), frame)
			}
		case *layers.Ethernet, *layers.IPv6Routing:
		case *layers.TCP, *layers.UDP, *layers.ICMPv4, *layers.ICMPv6,
			*layers.IPv6HopByHop, *layers.IPv6Destination, *layers.IPv6Fragment: // whatever the options say
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
		netip.MustParsePrefix("::/0"):               rig.RouterMAC,
		netip.MustParsePrefix("0.0.0.0/0"):          rig.RouterMAC,
		netip.MustParsePrefix("2001:db8:dead::/48"): {},
	}
	for i := range 8 {
		hops[rig.ServerLocator(i)] = rig.HopMAC(i)
	}
	return hops
}

// judgedServices: many candidates and few, in all their wires and families; a
// history, transit, a service without flows, and one of datagrams. Servers 0 and 1, of whose
// signals the seeds are, may have any flow of the most.
func judgedServices() []topo.Service {
	signalling := topo.Version{Version: 2, Servers: rig.Farm(2)}
	many := rig.Hunting(3, 8, func(s *topo.Service) {
		s.History = []topo.Version{signalling, {Version: 1, Servers: rig.Farm(8)[2:7]}, {Version: 0, Servers: rig.Farm(9)[5:]}}
	})
	four := rig.Hunting(2, 8, rig.Over4)
	inserted := rig.Service(90, topo.Hunt, 4, 8)
	rig.Inserting(&inserted)
	four.History, inserted.History = []topo.Version{signalling}, []topo.Version{signalling}
	few := rig.Service(91, topo.Hunt, 4, 2)
	rig.ViaTransit(1)(&few)
	datagrams := rig.Service(92, topo.Hunt, 2, 8)
	rig.OverUDP(&datagrams)
	datagrams.History = []topo.Version{signalling, {Version: 1, Servers: rig.Farm(8)[4:]}}
	datagrams4 := datagrams
	rig.Over4(&datagrams4)
	return append([]topo.Service{many, four, inserted, few, datagrams, datagrams4, rig.Service(81, topo.Stateless, 1, 5)}, keptServices()...)
}

// keptServices: clients' packets make the entries, and the history or the agents recover
// them, in both families and of datagrams.
func keptServices() (all []topo.Service) {
	for port, how := range map[uint16]topo.Recovery{93: topo.HistoryRecovery, 94: topo.AgentsRecovery} {
		for _, change := range []func(*topo.Service){func(*topo.Service) {}, rig.Over4, rig.OverUDP} {
			svc := rig.Service(port, topo.Single, 1, 8)
			svc.Recovery, svc.Servers[3].Weight = how, 0
			svc.History = []topo.Version{{Version: 1, Servers: rig.Farm(9)[2:]}, {Version: 0, Servers: rig.Farm(9)}}
			change(&svc)
			all = append(all, svc)
		}
	}
	return all
}

// newLBJudge holds the LB, with these keys, against the oracle.
func newLBJudge(t testing.TB, keys []topo.SignalKey) *judge {
	t.Helper()
	rig.Enter(t)
	cfg := rig.LBConfig(judgedServices()...)
	cfg.Flows.Entries = 2 * rememberAtMost
	cfg.Keys = keys
	r := rig.LoadLB(t, rig.Hits{}, cfg)
	if err := r.SetNextHops(judgedHops()); err != nil {
		t.Fatal(err)
	}
	more := []oracle.Reason{
		oracle.SegmentsLeft, oracle.Stranger, oracle.Offered, oracle.Asked, oracle.Steered, oracle.Unwrapped,
		oracle.GivenBack, oracle.Rejected, oracle.GoneOn,
	}
	if keys == nil {
		more = append(more, oracle.Begun, oracle.Kept)
	}
	if keys == nil {
		more = append(more, oracle.Conflict, oracle.ExtHeader, oracle.TooBig, oracle.SmallMTU, oracle.Echoed,
			oracle.ReportedTooBig, oracle.BadTooBig, oracle.ErrorAboutOurs)
	} else {
		more = append(more, oracle.BadTag)
	}
	return &judge{
		must: reasons(more...),
		Rig:  &r.Rig, lines: &r.Table, seeds: lbSeeds(), netns: currentNetns(t),
		programs: map[string]*ebpf.Program{
			"lb": r.Objects().Lb, "lb_signal": r.Objects().LbSignal, "lb_odd": r.Objects().LbOdd, "lb_list": r.Objects().LbList,
			"lb_kept": r.Objects().LbKept, "lb_returned": r.Objects().LbReturned, "lb_agentless": r.Objects().LbAgentless, "lb_behind": r.Objects().LbBehind,
		},
		oracle: &oracle.LB{
			Node: oracle.Node{Locator: rig.LbLocator, MAC: rig.HereMAC, MTU: rig.MTU, Neighbours: judgedHops()},
			Key:  r.Table.Key, Services: cfg.Services, Keys: keys,
			ServerKey: func(k topo.SignalKey, locator netip.Prefix) topo.Key { return wire.ServerKey(k.Server, locator) },
		},
	}
}

// newSignedLBJudge: an LB with keys, and signals of which most carry a good tag.
func newSignedLBJudge(t testing.TB) *judge {
	j := newLBJudge(t, []topo.SignalKey{rig.OldKeys, rig.NewKeys})
	j.seeds = signalSeeds(func(server int, p rig.Packet, to netip.Addr, change ...func(*rig.Route)) []byte {
		k := []topo.SignalKey{rig.OldKeys, rig.NewKeys}[server]
		return rig.SignalTo(server, p, rig.WithKey(to, k.ID), append(change, rig.SignedBy(wire.ServerKey(k.Server, rig.ServerLocator(server))))...)
	})
	for _, p := range []rig.Packet{rig.Inward(rig.HuntPort, wire.ACK), rig.Inward(90, wire.SYN), rig.Datagram(92, "x")} {
		to := rig.WithKey(rig.SID(rig.LbLocator, wire.RecoverStickiness, 5), rig.OldKeys.ID)
		back := rig.Route{From: rig.LbLocator, Segments: []netip.Addr{to}, Hop: 63, Key: &rig.OldKeys.Farm}
		j.seeds = append(j.seeds, p.Frame(), wire.Frame(rig.HereMAC, rig.RouterMAC, back.Around(p)))
	}
	return j
}

// newAgentJudge: a service that takes what it can, one that takes what it
// must, an offer without a listener.
func newAgentJudge(t testing.TB) *judge {
	t.Helper()
	eager := rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.Acceptance = topo.Always })
	busy := rig.Offering(81, func(o *topo.Offering) { o.Threshold = 0 })
	inserted := rig.Offering(insertedPort, rig.Inserts, func(o *topo.Offering) { o.Acceptance = topo.Always })
	r := rig.NewAgentOf(t, rig.Hits{}, 2*rememberAtMost, eager, busy, inserted, rig.Offering(82))
	rig.Listen(t, rig.HuntPort, 128)
	rig.Listen(t, 81, 128)
	rig.Listen(t, insertedPort, 128)
	if err := r.SetNextHops(judgedHops()); err != nil {
		t.Fatal(err)
	}
	return &judge{
		must: reasons(oracle.NotSYN, oracle.SegmentsLeft, oracle.Stale, oracle.GivenBack, oracle.Asked, oracle.Forwarded, oracle.NotForUs),
		Rig:  &r.Rig, conns: rig.ConnsOf(t, r.Agent), seeds: agentSeeds(), netns: currentNetns(t),
		oracle: &oracle.Agent{
			Node: oracle.Node{Locator: rig.ServerLocator(rig.Here), MAC: rig.HereMAC, MTU: rig.MTU, Neighbours: judgedHops()},
			Services: map[topo.VIP]oracle.Offering{
				eager.VIP:                     {Listening: true, Takes: true},
				inserted.VIP:                  {Listening: true, Takes: true, Wire: topo.Insert},
				busy.VIP:                      {Listening: true},
				{Addr: rig.VipAddr, Port: 82}: {},
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
	for _, why := range append(more, oracle.NotForUs, oracle.Truncated, oracle.BadTransport, oracle.BadSRH, oracle.WithTLV, oracle.WrongWire,
		oracle.NotEncaps, oracle.BadFunction, oracle.NotOurService, oracle.HopLimit, oracle.Congested, oracle.NoNeighbour) {
		must[why] = true
	}
	return must
}

// FuzzLB and FuzzAgent let Go find frames that the mutator does not.
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
