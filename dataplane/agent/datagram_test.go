package agent_test

import (
	"net/netip"
	"testing"
	"time"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestDatagramsAtOnce: a datagram goes past a server that has just passed on another of
// its flow, which may not have arrived yet; by force it stays.
func TestDatagramsAtOnce(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, udpOffering(func(o *topo.Offering) { o.Cores = 0 }))
	p := rig.Inward(udpPort, 0)
	listenUDP(t, p.Dst)
	in := rig.InnerUDP(p)
	offer := rig.ToWith(in, 0, wire.ConnectAvail, wire.ConnectForce)
	r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking[0] = 4 })
	r.Send(t, offer.Frame()).Is(t, "first", rig.XDPTX, offer.Onward(rig.HopMAC(2)), "pass_on_busy")
	r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking[0] = 0 })
	r.Send(t, offer.Frame()).Is(t, "second", rig.XDPTX, offer.Onward(rig.HopMAC(2)), "pass_on_again")
	r.At(t, rig.Start+999*time.Millisecond)
	r.Send(t, offer.Frame()).Is(t, "a second later", rig.XDPTX, offer.Onward(rig.HopMAC(2)), "pass_on_again")
	r.At(t, rig.Start+2*time.Second)
	r.Send(t, offer.Frame()).Is(t, "two seconds later", rig.XDPPass, in.Delivered(), "accept_avail")

	p.Src = netip.AddrPortFrom(rig.ClientAddr, rig.ClientPort+1)
	in = rig.InnerUDP(p)
	offer, forced := rig.ToWith(in, 0, wire.ConnectAvail, wire.ConnectForce), rig.ToWith(in, 0, wire.ConnectForce, wire.ConnectForce)
	r.SetLoad(t, func(l *objects.AgentLoad) { l.Asking[0] = 4 })
	r.Send(t, offer.Frame()).Is(t, "another flow", rig.XDPTX, offer.Onward(rig.HopMAC(2)), "pass_on_busy")
	r.Send(t, forced.Frame()).Is(t, "by force", rig.XDPPass, in.Delivered(), "accept_force")
}
