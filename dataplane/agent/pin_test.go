package agent_test

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"proffer/dataplane/agent"
	"proffer/proof/rig"
	"proffer/wire"
)

// TestReturnsOutliveDaemon: the attached program still reaches agent_return, although the kernel
// empties an array of programs that neither a pin nor a process holds.
func TestReturnsOutliveDaemon(t *testing.T) {
	rig.Enter(t)
	cfg := rig.AgentConfig(1024, rig.Offering(rig.HuntPort))
	cfg.Pin = rig.BPFFS(t) + "/s1"
	first, err := agent.NewWith(cfg, rig.InVirtualTime)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Attach(); err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName(rig.Device)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(link.Attrs().Xdp.ProgId))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	first.Die()
	if err := first.Close(); err != nil { // as the kernel does for a process that ends
		t.Fatal(err)
	}
	frame := rig.To(rig.Inward(rig.HuntPort, wire.ACK), 1, wire.AckStickiness).Frame()
	for range 50 { // a worker of the kernel empties it, later
		action, err := p.Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, 4096)})
		if err != nil || action != rig.XDPDrop { // agent_return has no next hop; XDP_ABORTED without it
			t.Fatalf("a packet of no flow to the attached program: action %d, %v", action, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
	second, err := agent.NewWith(cfg, rig.InVirtualTime)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := second.Attach(); err != nil {
		t.Fatal(err)
	}
	if err := second.Detach(); err != nil {
		t.Error(err)
	}
}

// TestHintsOutliveDaemon: the next daemon's programs find a flow of before by its hint, as a
// repeated offer shows.
func TestHintsOutliveDaemon(t *testing.T) {
	rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort)) // for its namespace
	cfg := rig.AgentConfig(64, rig.Offering(rig.HuntPort, rig.ByTable))
	cfg.Pin = rig.BPFFS(t) + "/s1"
	first := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
	if err := first.Attach(); err != nil {
		t.Fatal(err)
	}
	p := rig.Inward(rig.HuntPort, wire.SYN)
	first.Accept(t, p)
	first.Die()
	r := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
	r.Send(t, rig.To(p, wire.Generation(p.Seq), wire.ConnectForce).Frame()).Is(t, "its SYN again", rig.XDPPass, rig.Delivered(p), "accept_repeated")
}
