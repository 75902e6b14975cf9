package testbed

import (
	"fmt"
	"net/netip"

	"proffer/wire"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// transitFunction is that of transit nodes, which is none of ours.
const transitFunction = wire.Function(0xe)

// function is the SID of a locator with a function and no argument.
func function(locator netip.Prefix, function wire.Function) netip.Addr {
	return wire.SID{Locator: locator, Function: function}.Addr()
}

// srv6 lets a kernel end SIDs: it accepts SRv6 and forwards.
func srv6() []sysctl {
	return append(forwarding("1"),
		sysctl{"net/ipv6/conf/all/seg6_enabled", "1"},
		sysctl{"net/ipv6/conf/default/seg6_enabled", "1"})
}

// planTransit plans a node that does End (RFC 8986 §4.1) at locator:e:: and
// knows nothing of us.
func planTransit(n *Node, j int) {
	n.address(transitSerial + j)
	n.Locator = TransitLocator(j)
	n.SID = function(n.Locator, transitFunction)
	n.plan = plan{
		sysctls:  append(srv6(), quiet()...),
		loopback: []netip.Prefix{single(n.Loopback())},
		routed:   []netip.Prefix{n.Locator},
		end:      &netlink.SEG6LocalEncap{Action: nl.SEG6_LOCAL_ACTION_END},
	}
}

// Action is the behaviour of an agentless server's kernel at its SID (RFC 8986 §4).
type Action int

const (
	// DT6 decapsulates IPv6 and looks the inner destination up in the table
	// of local addresses: for the VIP on the server's lo.
	DT6 Action = iota
	// DX6 decapsulates IPv6 and sends the packet to the node Behind the server:
	// Linux delivers nothing of it to its own lo.
	DX6
	// DX4 decapsulates IPv4 and sends the packet to the node Behind the
	// server, or else to the VIP on its lo.
	DX4
)

// Agentless makes a server a plain SRv6 host: without an agent its kernel ends
// the SID locator:d7:: by this action, which replaces that before. A node
// Behind the server is made first. End.DT4 and End.DT46 would want
// a VRF, which not every kernel has.
func (b *Bed) Agentless(server *Node, action Action) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.serving(server); err != nil {
		return fmt.Errorf("testbed: agentless %s: %w", server.Name, err)
	}
	end, err := action.encap(server)
	if err == nil {
		err = server.inside(func() error {
			perInterface := sysctl{"net/ipv6/conf/" + device + "/seg6_enabled", "1"}
			if err := setAll(append(srv6(), perInterface)); err != nil {
				return err
			}
			return server.space.end(function(server.Locator, wire.Deliver), end)
		})
	}
	if err != nil {
		return fmt.Errorf("testbed: agentless %s: %w", server.Name, err)
	}
	server.SID = function(server.Locator, wire.Deliver)
	return nil
}

// encap is the kernel's name for the action on this server. The next hop is
// the VIP itself, to which the server has a route: to lo, or by way of the
// application. The application's address would do for DX6 but not for DX4
// (Linux then asks the link for the VIP).
func (a Action) encap(server *Node) (*netlink.SEG6LocalEncap, error) {
	plain := server.app == nil
	routed := !plain && server.app.kind == RoutedVeth
	switch {
	case a == DT6 && plain:
		return &netlink.SEG6LocalEncap{Action: nl.SEG6_LOCAL_ACTION_END_DT6, Table: unix.RT_TABLE_LOCAL}, nil
	case a == DX6 && routed:
		return &netlink.SEG6LocalEncap{Action: nl.SEG6_LOCAL_ACTION_END_DX6, In6Addr: server.bed.VIP.AsSlice()}, nil
	case a == DX4 && (plain || routed):
		return &netlink.SEG6LocalEncap{Action: nl.SEG6_LOCAL_ACTION_END_DX4, InAddr: server.bed.VIP4.AsSlice()}, nil
	}
	return nil, fmt.Errorf("action %d does not lead to the VIP: DT6 is for a server with it on lo, DX6 for one with a RoutedVeth Behind it, DX4 for either", a)
}

// end makes the kernel end a SID.
func (s *space) end(sid netip.Addr, how *netlink.SEG6LocalEncap) error {
	link, err := s.netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find %s: %w", device, err)
	}
	how.Flags[nl.SEG6_LOCAL_ACTION] = true
	how.Flags[nl.SEG6_LOCAL_TABLE] = how.Table != 0
	how.Flags[nl.SEG6_LOCAL_NH4] = how.InAddr != nil
	how.Flags[nl.SEG6_LOCAL_NH6] = how.In6Addr != nil
	err = s.netlink.RouteReplace(&netlink.Route{Dst: ipNet(single(sid)), LinkIndex: link.Attrs().Index, Encap: how})
	return wrap("end SID "+sid.String(), err)
}
