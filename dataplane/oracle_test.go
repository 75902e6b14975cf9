package dataplane

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"proffer/oracle"
	"proffer/topo"
)

// judge holds one real program against the oracle.
type judge struct {
	*rig
	oracle interface {
		Receive([]byte) oracle.Answer
		Known() int
		Forget()
	}
	table *ebpf.Map // the program's flows
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
	var keys []lbTuple
	var key lbTuple
	var value []byte
	for it := j.table.Iterate(); it.Next(&key, &value); {
		keys = append(keys, key)
	}
	for _, k := range keys {
		if err := j.table.Delete(k); err != nil {
			t.Fatal(err)
		}
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

// decodes checks that a stranger's decoder understands what was transmitted,
// down to TCP, and that every length is exact.
func decodes(frame []byte) error {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	var seen []gopacket.LayerType
	for _, l := range p.Layers() {
		seen = append(seen, l.LayerType())
		if ip, ok := l.(*layers.IPv6); ok && int(ip.Length) > len(frame)-54 {
			return fmt.Errorf("IPv6 length %d in a frame of %d bytes: %x", ip.Length, len(frame), frame)
		}
		if l.LayerType() == layers.LayerTypeTCP {
			break
		}
	}
	for _, known := range [][]gopacket.LayerType{
		{layers.LayerTypeEthernet, layers.LayerTypeIPv6, layers.LayerTypeTCP},
		{layers.LayerTypeEthernet, layers.LayerTypeIPv6, layers.LayerTypeIPv6, layers.LayerTypeTCP},
		{layers.LayerTypeEthernet, layers.LayerTypeIPv6, layers.LayerTypeIPv6Routing, layers.LayerTypeIPv6, layers.LayerTypeTCP},
	} {
		if slices.Equal(seen, known) {
			return nil
		}
		if n := len(known) - 1; len(seen) == n+1 && slices.Equal(seen[:n], known[:n]) && seen[n] == gopacket.LayerTypeDecodeFailure {
			return nil // a TCP option that is the client's own nonsense
		}
	}
	return fmt.Errorf("transmitted %v (%v): %x", seen, p.ErrorLayer(), frame)
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
		netip.MustParsePrefix("2001:db8:dead::/48"): {},
	}
	for i := range 8 {
		hops[serverLocator(i)] = hopMAC(i)
	}
	return hops
}

// newLBJudge: services that hunt among many and few, one that does not.
func newLBJudge(t testing.TB) *judge {
	t.Helper()
	few := service(90, topo.Hunt, 4, 2)
	r := newLBRigOf(t, hits{}, 2*rememberAtMost, hunting(3, 8), few, service(81, topo.Single, 1, 5))
	if err := r.SetNextHops(judgedHops()); err != nil {
		t.Fatal(err)
	}
	return &judge{
		must: reasons(oracle.ExtHeader, oracle.SegmentsLeft, oracle.Stranger, oracle.Conflict, oracle.TooBig),
		rig:  &r.rig, table: r.objs.Flows, seeds: lbSeeds(), netns: currentNetns(t),
		oracle: &oracle.LB{
			Node: oracle.Node{Locator: lbLocator, MAC: hereMAC, MTU: mtu, Neighbours: judgedHops()},
			Key:  lbKeyOfTests, Services: r.cfg.Services,
		},
	}
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
		must: reasons(oracle.NotSYN, oracle.SegmentsLeft),
		rig:  &r.rig, table: r.objs.Conns, seeds: agentSeeds(), netns: currentNetns(t),
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

// TestLBOracle and TestAgentOracle mutate good frames, always the same way.
func TestLBOracle(t *testing.T)    { newLBJudge(t).mutate(t) }
func TestAgentOracle(t *testing.T) { newAgentJudge(t).mutate(t) }

func (j *judge) mutate(t *testing.T) {
	const frames = 200_000
	m := newMutator(t, j.seeds)
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
	for _, why := range append(more, oracle.NotForUs, oracle.Truncated, oracle.BadTCP, oracle.BadSRH, oracle.BadTLV, oracle.NotEncaps,
		oracle.BadFunction, oracle.NotOurService, oracle.HopLimit, oracle.Congested, oracle.NoNeighbour, oracle.Forwarded) {
		must[why] = true
	}
	return must
}

// FuzzLB and FuzzAgent let Go find what the mutator does not.
func FuzzLB(f *testing.F)    { newLBJudge(f).fuzz(f) }
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
