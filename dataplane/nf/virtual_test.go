package nf_test

import (
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/dataplane/nf"
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
	want := nf.VirtualCore{}
	pass := func(core, service int, packet []byte, stays time.Duration) {
		t.Helper()
		b.run(t, around(to(core, service), packet)).Is(t, "packet", redirect, nil, "direct")
		if core == 0 {
			want.Served++
			want.Stayed += stays
		}
	}
	begun := now(t) - time.Second // all is served when the test looks
	pass(0, costly, stamped(begun), each)
	pass(0, costly, stamped(begun), 2*each)
	pass(0, costly, stamped(begun+each/2), 3*each-each/2)
	b.run(t, around(to(0, costly), stamped(begun+each/2))).Is(t, "full", rig.XDPDrop, nil, "drop_virtual")
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
func is(t *testing.T, b *bench, want nf.VirtualCore) {
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
	if v, there, err := newBench(t, rig.Hits{}).Virtual(0); v != (nf.VirtualCore{}) || there || err != nil {
		t.Errorf("%+v, %v, %v", v, there, err)
	}
}

// TestVirtualNoise: reports of a virtual core with noise have the error of a measurement each, and loads from 0 to
// 1; the status has the true work. Without noise a report is the work.
func TestVirtualNoise(t *testing.T) {
	const noise = 0.2
	for _, with := range []float64{0, noise} {
		b := newBench(t, rig.Hits{}, func(cfg *topo.Datapath) {
			cfg.Chains[0].Functions = []topo.Function{topo.Virtual{Each: time.Microsecond, Noise: with}}
		})
		var loads []float64
		begun, last := now(t), time.Duration(0)
		for range 400 { // of an idle core
			time.Sleep(500 * time.Microsecond)
			busy, err := b.Busy()
			must(t, err)
			at := now(t)
			loads = append(loads, float64(busy[0]-last)/float64(at-begun))
			begun, last = at, busy[0]
		}
		sum, above := 0.0, 0
		for _, load := range loads {
			if load < 0 || load > 1.5 { // the clocks of the test and of the node differ
				t.Errorf("a report has a load of %v", load)
			}
			if sum += load; load > 0 {
				above++
			}
		}
		mean, want := sum/float64(len(loads)), with*0.399 // of a normal distribution's half, the other being 0
		if math.Abs(mean-want) > 0.03 || with > 0 && (above < 120 || above > 280) {
			t.Errorf("noise %v: reports of an idle core have a load of %.3f on average, want %.3f; %d of %d are above 0", with, mean, want, above, len(loads))
		}
		if v, _, err := b.Virtual(0); err != nil || v.Busy != 0 {
			t.Errorf("an idle core worked for %v, %v", v.Busy, err)
		}
	}
}
