package testbed

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

const (
	// VIP is the address of the service that the bed's routes know.
	VIP = "2001:db8:f::1"
	// Port is the service's TCP port by convention; the bed itself knows no ports.
	Port = 80
	// MTU of every link.
	MTU = 1500
	// AdvMSS is what the servers' route to the clients advertises, so that a
	// client's segment still fits the MTU inside the longest encapsulation:
	// an offer to four candidates, 40 + 8 + 16·3 bytes (DESIGN.md §3).
	AdvMSS = MTU - 40 - 20 - (40 + 8 + 16*3)
	// MaxServers keeps two neighbours a link well inside the 1,024 entries of
	// the kernel's neighbour table, which all namespaces share.
	MaxServers = 250
	// MaxClients is the longest list of client addresses.
	MaxClients = 0xffff

	device = "eth0" // a node's only interface
)

// ServerLocator is the locator of server i, counted from 1: 5f00:0:2:i::/64,
// inside the block that RFC 9602 sets aside for SIDs.
func ServerLocator(i int) netip.Prefix { return net64(0x5f00, 0, 2, uint16(i)) }

// LBLocator is the locator of LB j, counted from 1: 5f00:0:1:j::/64.
func LBLocator(j int) netip.Prefix { return net64(0x5f00, 0, 1, uint16(j)) }

// ClientNet holds every client address.
func ClientNet() netip.Prefix { return net64(0x2001, 0xdb8, 0xc, 0) }

// ClientAddr is client address k, counted from 1: 2001:db8:c::k.
func ClientAddr(k int) netip.Addr { return host(ClientNet(), uint16(k)) }

// linkNet is the net of one link to the router, which is ::1 on it; the node
// is ::2. Serial 0 is the client's, 0x100 + j that of LB j, 0x200 + i that of
// server i.
func linkNet(serial int) netip.Prefix { return net64(0x2001, 0xdb8, 1, uint16(serial)) }

func net64(groups ...uint16) netip.Prefix {
	var ip [16]byte
	for i, g := range groups {
		binary.BigEndian.PutUint16(ip[2*i:], g)
	}
	return netip.PrefixFrom(netip.AddrFrom16(ip), 64)
}

func host(p netip.Prefix, id uint16) netip.Addr {
	ip := p.Addr().As16()
	binary.BigEndian.PutUint16(ip[14:], id)
	return netip.AddrFrom16(ip)
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// plan is all that distinguishes one kind of node from another.
type plan struct {
	sysctls  []sysctl
	loopback []netip.Prefix // addresses of its lo
	device   []netip.Prefix // further addresses of its eth0
	source   netip.Addr     // preferred source of its default route
	advMSS   int            // of its default route; 0 = the kernel's
	routed   []netip.Prefix // what the router sends its way
}

// quiet spares every namespace the second that duplicate address detection
// takes, and the router solicitations nobody answers.
func quiet() []sysctl {
	return []sysctl{
		{"net/ipv6/conf/all/accept_dad", "0"},
		{"net/ipv6/conf/default/accept_dad", "0"},
		{"net/ipv6/conf/all/accept_ra", "0"},
		{"net/ipv6/conf/default/accept_ra", "0"},
		{"net/ipv6/conf/default/router_solicitations", "0"},
	}
}

func forwarding(on string) sysctl { return sysctl{"net/ipv6/conf/all/forwarding", on} }

func planRouter(n *Node) {
	n.plan = plan{sysctls: append(quiet(), forwarding("1"))}
}

func planClient(n *Node, addrs []netip.Addr) {
	n.address(0)
	n.plan = plan{
		sysctls: append(quiet(), forwarding("0"),
			sysctl{"net/ipv4/ip_local_port_range", "1024 65535"}),
		source: addrs[0],
		routed: []netip.Prefix{ClientNet()},
	}
	for _, a := range addrs {
		n.plan.device = append(n.plan.device, single(a))
	}
}

func planLB(n *Node, j int) {
	n.address(0x100 + j)
	n.Locator = LBLocator(j)
	n.plan = plan{
		sysctls:  append(quiet(), forwarding("0")),
		loopback: []netip.Prefix{single(n.Loopback())},
		routed:   []netip.Prefix{n.Locator},
	}
	if j == 1 { // with more LBs this becomes one route with a next hop for each
		n.plan.routed = append(n.plan.routed, single(netip.MustParseAddr(VIP)))
	}
}

func planServer(n *Node, i int) {
	n.address(0x200 + i)
	n.Locator = ServerLocator(i)
	n.plan = plan{
		sysctls: append(quiet(), forwarding("0"),
			sysctl{"net/core/somaxconn", "4096"},
			sysctl{"net/ipv4/tcp_max_syn_backlog", "4096"}),
		loopback: []netip.Prefix{single(n.Loopback()), single(netip.MustParseAddr(VIP))},
		advMSS:   AdvMSS,
		routed:   []netip.Prefix{n.Locator},
	}
}

// validate refuses what no bed can be built from.
func (c Config) validate() error {
	switch {
	case c.Servers < 1 || c.Servers > MaxServers:
		return fmt.Errorf("testbed: %d servers: say 1 to %d", c.Servers, MaxServers)
	case c.Clients < 0 || c.Clients > MaxClients:
		return fmt.Errorf("testbed: %d client addresses: say 1 to %d, or 0 for %d", c.Clients, MaxClients, defaultClients)
	case c.Delay < 0 || c.Delay > maxDelay:
		return fmt.Errorf("testbed: one-way delay of %v: say 0 to %v", c.Delay, maxDelay)
	}
	return nil
}
