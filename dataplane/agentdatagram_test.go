package dataplane

import (
	"net/netip"
	"testing"
	"time"

	"proffer/topo"
)

// TestDatagramsAtOnce: a datagram goes past whoever has just refused another of
// its flow, which may not have arrived yet; by force it stays.
func TestDatagramsAtOnce(t *testing.T) {
	r := newAgentRig(t, hits{}, udpOffering(func(o *topo.Offering) { o.Cores = 0 }))
	p := inward(udpPort, 0)
	listenUDP(t, p.dst)
	in := innerUDP(p)
	offer := toWith(in, 0, 0xca, 0xcf)
	r.setLoad(t, func(l *agentLoad) { l.Asking = 4 })
	r.send(t, offer.frame()).is(t, "first", xdpTX, offer.onward(hopMAC(2)), "pass_on_busy")
	r.setLoad(t, func(l *agentLoad) { l.Asking = 0 })
	r.send(t, offer.frame()).is(t, "second", xdpTX, offer.onward(hopMAC(2)), "pass_on_again")
	r.at(t, start+999*time.Millisecond)
	r.send(t, offer.frame()).is(t, "a second later", xdpTX, offer.onward(hopMAC(2)), "pass_on_again")
	r.at(t, start+2*time.Second)
	r.send(t, offer.frame()).is(t, "two seconds later", xdpPass, in.delivered(), "accept_avail")

	p.src = netip.AddrPortFrom(clientAddr, clientPort+1)
	in = innerUDP(p)
	offer, forced := toWith(in, 0, 0xca, 0xcf), toWith(in, 0, 0xcf, 0xcf)
	r.setLoad(t, func(l *agentLoad) { l.Asking = 4 })
	r.send(t, offer.frame()).is(t, "another flow", xdpTX, offer.onward(hopMAC(2)), "pass_on_busy")
	r.send(t, forced.frame()).is(t, "by force", xdpPass, in.delivered(), "accept_force")
}
