package agent_test

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/proof/rig"
	"proffer/wire"
)

// TestClock: the programs' time, from the kernel's count of ticks, is CLOCK_MONOTONIC to a few
// ticks.
func TestClock(t *testing.T) {
	rig.Enter(t)
	rig.AddLocal(t, rig.VipAddr)
	r := rig.LoadAgent(t, rig.Hits{}, rig.AgentConfig(64, rig.Offering(rig.HuntPort)), func(*ebpf.CollectionSpec) error { return nil })
	rig.Listen(t, rig.HuntPort, 8)
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		t.Fatal(err)
	}
	p := rig.Inward(rig.HuntPort, wire.SYN)
	offer := rig.To(p, wire.Generation(p.Seq), wire.ConnectForce)
	before := monotonic(t)
	r.Send(t, offer.Frame()).Is(t, "an offer", rig.XDPPass, rig.Delivered(p), "accept_force")
	after, seen := monotonic(t), time.Duration(r.MustConn(t, p).Seen)*rig.ConnUnit
	if most := 4*time.Duration(tick.Nano()) + rig.ConnUnit; seen < before-most || seen > after+most {
		t.Errorf("the programs' clock shows %v between %v and %v", seen, before, after)
	}
}

func monotonic(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}
