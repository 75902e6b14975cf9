package control

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"proffer/topo"
)

// TestPatienceStays: a server that was dead for long and answers again shows nothing about the distance
// of clients, so its services wait no longer for the answers of others.
func TestPatienceStays(t *testing.T) {
	f := newHealthFarm(t, topo.Single, 4)
	for range 4 {
		f.run(40 * time.Second)
		f.dead["s3"] = true
		f.run(20 * time.Second)
		f.dead["s3"] = false
		f.run(10 * time.Second)
		if f.down() != nil {
			t.Fatalf("down: %v", f.down())
		}
	}
	if p := f.h.services[0].patience; p != clientPatience {
		t.Errorf("after %d changes the service waits %v for an answer, want %v", len(f.events), p, clientPatience)
	}
}

// TestRetriesAll: of many targets without a next hop all are asked for, some each second, and not the
// first alone.
func TestRetriesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := newBench(t)
		var targets []netip.Addr
		for i := range 3 * mostRetried {
			targets = append(targets, netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}))
		}
		c.SetWays(Ways{"eth0": targets})
		defer running(t, b, c)()
		b.learn(other) // those of the targets are missing
		time.Sleep(4*sweepEvery + time.Millisecond)
		synctest.Wait()
		asked := map[netip.Addr]bool{}
		for _, a := range b.resolved {
			asked[a] = true
		}
		if len(asked) != len(targets) {
			t.Errorf("%d of %d targets were asked for", len(asked), len(targets))
		}
	})
}
