package lb

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/topo"
	"proffer/wire"
)

// Check asks the agents of servers whether they are alive, in the packets that all agents pass on: a
// question about a flow of the service that no server has, behind which this LB itself is asked. An agent
// that is alive passes it on to this LB, whose program counts it (Health.Alive). A server without a next hop
// is left out.
func (l *LB) Check(checks []dataplane.Check) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range checks {
		frame := l.checkOf(&checks[i])
		if frame == nil {
			continue
		}
		_, e := l.objs.LbCheck.Run(&ebpf.RunOptions{Data: frame, Repeat: 1, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES})
		if e != nil {
			err = errors.Join(err, fmt.Errorf("send a check to server %s: %w", checks[i].Server.Name, e))
		}
	}
	return err
}

// checkOf is the frame of a check; nil: the server has no agent or no next hop, or the service is gone.
func (l *LB) checkOf(c *dataplane.Check) []byte {
	number, numbered := l.numbers.known[objects.ServerBits(&c.Server)]
	at, served := l.services[c.VIP]
	if !numbered || !served || c.Server.Delivery != topo.ByAgent || !l.reaches(c.Server) {
		return nil
	}
	svc := &at.svc.Service
	var segments []netip.Addr
	to := l.written[number].Mac
	if len(svc.Via) > 0 {
		hop, known := byLength(l.CurrentHops).lookup(svc.Via[0])
		if !known {
			return nil
		}
		segments, to = append(segments, svc.Via...), hop
	}
	segments = append(segments,
		wire.SID{Locator: c.Server.Locator, Function: wire.RecoverStickiness}.Addr(),
		wire.SID{Locator: l.node.Locator, Function: wire.RecoverStickiness, Generation: uint16(number), Report: objects.PositionCheck}.Addr())
	return l.checkAround(c.VIP, svc.Wire, segments, to)
}

// noClient is the client of a check in IPv4 (RFC 7600's dummy address).
var noClient = netip.AddrFrom4([4]byte{192, 0, 0, 8})

// checkAround is the frame of a check by a route, to a next hop.
func (l *LB) checkAround(vip topo.VIP, by topo.Wire, segments []netip.Addr, to topo.MAC) []byte {
	const port = 9 // discard
	client := netip.AddrPortFrom(l.node.Locator.Addr(), port)
	if vip.Addr.Is4() {
		client = netip.AddrPortFrom(noClient, port)
	}
	f := policy.Flow{Client: client, VIP: netip.AddrPortFrom(vip.Addr, vip.Port), Protocol: vip.Protocol}
	h := wire.IP{Source: client.Addr(), Destination: vip.Addr, HopLimit: wire.DefaultHopLimit}
	packet := h.UDP(port, vip.Port, nil)
	if vip.Protocol == topo.TCP {
		packet = h.TCP(wire.TCP{From: port, To: vip.Port, Flags: wire.ACK}, nil)
	}
	route := wire.Route{From: wire.Own(l.node.Locator), Segments: segments, HopLimit: wire.DefaultHopLimit}
	if len(l.signing) > 0 {
		k := l.signing[0]
		for i := len(segments) - 2; i < len(segments); i++ {
			sid := wire.ParseSID(segments[i])
			sid.KeyID = k.ID
			segments[i] = sid.Addr()
		}
		route = route.Signed(k.Farm, f, l.node.Locator, by, packet)
	}
	return wire.Frame(to, topo.MAC(l.Dev.Load().HardwareAddr), route.Put(by, packet))
}
