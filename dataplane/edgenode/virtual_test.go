package edgenode_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/dataplane/edgenode"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// testVirtual: a virtual core serves packets in the order of their stamps, each after those before it;
// a packet that would wait for more than its queue is dropped; cores have a queue each, and all chains
// of a core have one together.
func testVirtual(t *testing.T, seen rig.Hits) {
	const each = 10 * time.Microsecond
	b := newBench(t, seen, func(cfg *topo.Datapath) {
		cfg.Chains[0].Functions = []topo.Function{topo.Virtual{Each: each, Queue: 2}}
		cfg.Chains[1].Functions = []topo.Function{topo.Virtual{Each: 2 * each, Queue: 512}}
	})
	port := uint16(1000) // a flow each
	stamped := func(at time.Duration) []byte {
		port++
		payload := make([]byte, wire.StampBytes)
		wire.PutStamp(payload, at)
		return wire.IP{Source: client4, Destination: remote4, HopLimit: 50}.UDP(port, 80, payload)
	}
	want := edgenode.VirtualCore{}
	pass := func(core, service int, packet []byte, stays time.Duration) {
		t.Helper()
		b.run(t, to(core, service).Around(packet)).Is(t, "packet", redirect, nil, "direct")
		if core == 0 {
			want.Served++
			want.Stayed += stays
		}
	}
	begun := now(t) - time.Second // all is served when the test looks
	pass(0, costly, stamped(begun), each)
	pass(0, costly, stamped(begun), 2*each)
	pass(0, costly, stamped(begun+each/2), 3*each-each/2)
	b.run(t, to(0, costly).Around(stamped(begun+each/2))).Is(t, "full", rig.XDPDrop, nil, "drop_virtual")
	pass(1, costly, stamped(begun), each)
	pass(0, natted, stamped(begun+each), 4*each) // 2·each of its own
	pass(0, costly, stamped(begun+time.Millisecond), each)
	want.Busy, want.Dropped = 6*each, 1
	is(t, b, want)

	for _, packet := range [][]byte{ // none arrives but now
		stamped(now(t) + time.Hour), stamped(now(t) - 2*time.Minute), outward("udp", 4, 7).packet(), outward("tcp", 4, 7).packet(),
	} {
		pass(0, costly, packet, 0)
	}
	v, _, err := b.Virtual(0)
	must(t, err)
	if extra := v.Stayed - want.Stayed; v.Served != want.Served || v.Dropped != 1 || extra < 4*each || extra > 4*3*each {
		t.Errorf("packets without a stamp of the last minute stayed %v of %d served in all, want %d", extra, v.Served, want.Served)
	}
}

// is compares the work of core 0.
func is(t *testing.T, b *bench, want edgenode.VirtualCore) {
	t.Helper()
	v, there, err := b.Virtual(0)
	must(t, err)
	v.At = 0
	if v != want || !there {
		t.Errorf("the virtual core did %+v (%v), want %+v", v, there, want)
	}
}

func now(t *testing.T) time.Duration {
	var ts unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts))
	return time.Duration(ts.Nano())
}

// TestNotVirtual: a node without the function has no virtual cores.
func TestNotVirtual(t *testing.T) {
	if v, there, err := newBench(t, rig.Hits{}).Virtual(0); v != (edgenode.VirtualCore{}) || there || err != nil {
		t.Errorf("%+v, %v, %v", v, there, err)
	}
}
