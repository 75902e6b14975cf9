package lb_test

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"proffer/plan"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

const jumboMTU = 9000

// wide gives the test's link an MTU of 9000 bytes.
func wide(t *testing.T) {
	t.Helper()
	rig.Enter(t)
	link, err := netlink.LinkByName(rig.Device)
	if err == nil {
		err = netlink.LinkSetMTU(link, jumboMTU)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestJumboFrames: docs/failures.md, jumbo frames: a frame of several buffers is steered,
// recovered, unwrapped, given back and answered with packet too big as a short one is.
func TestJumboFrames(t *testing.T) {
	wide(t)
	r := rig.LoadLB(t, rig.Hits{}, rig.LBConfig(rig.Hunting(2, 8), rig.Hunting(2, 8, rig.Over4), rig.Service(81, topo.Stateless, 1, 4)))
	r.Resolve(t, 255)
	for i, p := range []rig.Packet{rig.Inward(rig.HuntPort, wire.ACK), rig.OverIPv4(rig.Inward(rig.HuntPort, wire.ACK))} {
		list := r.List(t, i, p.Flow())
		for _, length := range []int{3400, 3800, 8000, jumboMTU - 64} { // the first buffer has some 3,500 bytes
			label := fmt.Sprintf("%v, %d bytes", p.Dst, length)
			long := rig.Sized(p, length)
			r.Send(t, long.Frame()).Is(t, label+", unknown", rig.XDPTX, rig.Recovered(long, list), "recover")
			whole := long.Frame()
			r.Send(t, whole[:len(whole)-1]).Is(t, label+", cut", rig.XDPDrop, nil, "drop_truncated")
		}
		r.Accepted(t, list[1], p)
		r.Confirm(t, p)
		generation := wire.Generation(p.Seq)
		for _, length := range []int{3800, jumboMTU - 40} {
			label := fmt.Sprintf("%v, %d bytes", p.Dst, length)
			long := rig.Sized(p, length)
			r.Send(t, long.Frame()).Is(t, label, rig.XDPTX, rig.ToOne(long, list[1], wire.AckStickiness, generation), "steer")
			answer := rig.Sized(p.Reply(wire.ACK), length)
			signal := rig.SignalFrom(list[1], answer, wire.CreateStickiness, generation)
			r.Send(t, signal).Is(t, label+", a signal", rig.XDPTX, rig.Unwrapped(answer), "stickiness_repeated")
			r.Send(t, signal[:len(signal)-1]).Is(t, label+", a cut signal", rig.XDPDrop, nil, "drop_truncated")
		}
		long := rig.Sized(p, jumboMTU-39)
		out := r.Send(t, long.Frame())
		out.Is(t, "too long", rig.XDPTX, nil, "too_big")
		checkTooBig(t, "too long", out.Frame[14:], long, jumboMTU-plan.LongestHeader(&r.Cfg.Services[i]))
	}
	p := rig.Sized(rig.Inward(81, wire.ACK), jumboMTU-40)
	r.Send(t, p.Frame()).Is(t, "single", rig.XDPTX, rig.ToOne(p, r.List(t, 2, p.Flow())[0], wire.Deliver, 0), "deliver")
}
