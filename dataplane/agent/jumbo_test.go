package agent_test

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"proffer/proof/rig"
	"proffer/wire"
)

// TestJumboSignals: docs/failures.md, jumbo frames: an agent reads, delivers, passes on and
// gives back a frame of several buffers as it does a short one.
func TestJumboSignals(t *testing.T) {
	const mtu = 9000
	rig.Enter(t)
	link, err := netlink.LinkByName(rig.Device)
	if err == nil {
		err = netlink.LinkSetMTU(link, mtu)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := rig.LoadAgent(t, rig.Hits{}, rig.AgentConfig(1024, rig.Offering(rig.HuntPort, rig.ByTable)), rig.InVirtualTime)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	r.Accept(t, p)
	r.Acknowledge(t, p)
	generation := wire.Generation(p.Seq)
	p.Flags, p.Seq = wire.ACK, p.Seq+1
	stranger := p
	stranger.Src = rig.CrowdClient(7)
	for _, length := range []int{3400, 3800, mtu - 64} { // the first buffer has some 3,500 bytes
		label := fmt.Sprintf("%d bytes", length)
		long := rig.Sized(p, length)
		steered := rig.To(long, generation, wire.AckStickiness)
		r.Send(t, steered.Frame()).Is(t, label, rig.XDPPass, rig.Delivered(long), "steered")
		frame := steered.Frame()
		r.Send(t, frame[:len(frame)-1]).Is(t, label+", cut", rig.XDPDrop, nil, "drop_truncated")
		other := rig.Sized(stranger, length)
		asked := rig.To(other, 0, wire.RecoverStickiness, wire.RecoverStickiness)
		r.Send(t, asked.Frame()).Is(t, label+", not mine", rig.XDPTX, asked.Onward(rig.HopMAC(2)), "pass_on_not_mine")
		wrong := rig.To(other, generation, wire.AckStickiness)
		r.Send(t, wrong.Frame()).Is(t, label+", given back", rig.XDPTX, wrong.Returned(), "give_back_not_mine")
	}
}
