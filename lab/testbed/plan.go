package testbed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

const (
	// MTU of every link.
	MTU = 1500

	minMTU = 1280 // RFC 8200 §5

	device = "eth0" // a node's only interface
)

// plan is all that distinguishes one kind of node from another.
type plan struct {
	sysctls  []sysctl
	loopback []netip.Prefix          // addresses of its lo
	device   []netip.Prefix          // further addresses of its eth0
	sources  []netip.Addr            // preferred sources of its default routes
	routed   []netip.Prefix          // the prefixes that the router sends its way
	mtu      int                     // of the router's routes to it; 0 = the link's
	end      *netlink.SEG6LocalEncap // its kernel's behaviour at its SID, if it has one
}

// quiet spares every namespace the second that duplicate address detection
// takes, and the router solicitations without an answer. A namespace inherits the
// machine's rp_filter, which would drop packets that come back another way.
func quiet() []sysctl {
	return []sysctl{
		{"net/ipv6/conf/all/accept_dad", "0"},
		{"net/ipv6/conf/default/accept_dad", "0"},
		{"net/ipv6/conf/all/accept_ra", "0"},
		{"net/ipv6/conf/default/accept_ra", "0"},
		{"net/ipv6/conf/default/router_solicitations", "0"},
		{"net/ipv4/conf/all/rp_filter", "0"},
		{"net/ipv4/conf/default/rp_filter", "0"},
	}
}

// forwarding comes first of a plan's sysctls: IPv4's resets others.
func forwarding(on string) []sysctl {
	return []sysctl{{"net/ipv4/conf/all/forwarding", on}, {"net/ipv6/conf/all/forwarding", on}}
}

func planRouter(n *Node) {
	n.plan = plan{sysctls: append(append(forwarding("1"), quiet()...),
		sysctl{"net/ipv6/fib_multipath_hash_policy", "1"}, // addresses and ports
		sysctl{"net/ipv4/fib_multipath_hash_policy", "1"},
		sysctl{"net/ipv4/icmp_ratemask", "0"})} // answer every knock, and every packet too big
}

func planClient(n *Node, addrs, addrs4 []netip.Addr, mtu int) {
	n.address(clientSerial)
	n.plan = plan{
		sysctls: append(append(forwarding("0"), quiet()...),
			sysctl{"net/ipv4/ip_local_port_range", "1024 65535"}),
		sources: []netip.Addr{addrs[0], addrs4[0]},
		routed:  []netip.Prefix{ClientNet(), ClientNet4()},
		mtu:     mtu,
	}
	for _, a := range append(append([]netip.Addr(nil), addrs...), addrs4...) {
		n.plan.device = append(n.plan.device, single(a))
	}
}

func planLB(n *Node, j int) {
	n.address(lbSerial + j)
	n.Locator = LBLocator(j)
	n.plan = plan{
		sysctls:  append(forwarding("0"), quiet()...),
		loopback: []netip.Prefix{single(n.Loopback())},
		routed:   []netip.Prefix{n.Locator},
	}
}

func planServer(n *Node, i int) {
	n.address(serverSerial + i)
	n.Locator = ServerLocator(i)
	n.plan = plan{
		sysctls:  append(append(forwarding("0"), quiet()...), serving()...),
		loopback: append([]netip.Prefix{single(n.Loopback())}, vips()...),
		routed:   []netip.Prefix{n.Locator},
	}
}

// serving are the settings of a namespace that has the VIPs and listens there. It
// must not announce the VIPs on its link: by default Linux answers ARP for any
// address of the machine, and asks with any as the sender.
func serving() []sysctl {
	return []sysctl{
		{"net/core/somaxconn", "4096"},
		{"net/ipv4/tcp_max_syn_backlog", "4096"},
		{"net/ipv4/conf/all/arp_ignore", "1"},
		{"net/ipv4/conf/all/arp_announce", "2"},
	}
}

// validate returns an error for a configuration that no bed can be built from.
func (c Config) validate() error {
	switch {
	case c.Servers < 1 || c.Servers > MaxServers:
		return fmt.Errorf("testbed: %d servers: say 1 to %d", c.Servers, MaxServers)
	case c.LBs < 0 || c.LBs > MaxLBs:
		return fmt.Errorf("testbed: %d LBs: say 1 to %d, or 0 for 1", c.LBs, MaxLBs)
	case c.Transits < 0 || c.Transits > MaxTransits:
		return fmt.Errorf("testbed: %d transits: say 0 to %d", c.Transits, MaxTransits)
	case c.Clients < 0 || c.Clients > MaxClients:
		return fmt.Errorf("testbed: %d client addresses: say 1 to %d, or 0 for %d", c.Clients, MaxClients, defaultClients)
	case c.ClientMTU != 0 && (c.ClientMTU < minMTU || c.ClientMTU > MTU):
		return fmt.Errorf("testbed: MTU of %d bytes towards the client: say %d to %d, or 0 for %d", c.ClientMTU, minMTU, MTU, MTU)
	}
	return errors.Join(c.Delay.validate(), validLoss(c.Loss))
}

const (
	// VIP is the address of the service that the bed's routes know.
	VIP = "2001:db8:f::1"
	// VIP4 is the same service in IPv4.
	VIP4 = "203.0.113.1"
	// Port is the service's TCP port by convention; the bed itself knows no ports.
	Port = 80
	// MaxServers keeps two neighbours a link well inside the 1,024 entries of
	// each of the kernel's neighbour tables, which all namespaces share.
	MaxServers = 250
	// MaxLBs is the most LBs that share the VIPs.
	MaxLBs = 16
	// MaxTransits is the most nodes that are SRv6 endpoints and nothing else.
	MaxTransits = 4
	// MaxClients is the longest list of client addresses.
	MaxClients = 0xffff
	// MaxClients4 is the longest list of IPv4 client addresses.
	MaxClients4 = 200
)

// Serials number the links: these, plus the number of the node from 1.
const (
	clientSerial  = 0
	lbSerial      = 0x100
	serverSerial  = 0x200
	transitSerial = 0x300
	appSerial     = 0x8000 // the link between a server and the node behind it
)

// SIDBlock holds every locator: RFC 9602 sets it aside for SIDs.
func SIDBlock() netip.Prefix { return netip.PrefixFrom(LBLocator(1).Addr(), 16).Masked() }

// LBLocator is the locator of LB j, counted from 1: 5f00:0:1:j::/64.
func LBLocator(j int) netip.Prefix { return net64(0x5f00, 0, 1, uint16(j)) }

// ServerLocator is the locator of server i, counted from 1: 5f00:0:2:i::/64.
func ServerLocator(i int) netip.Prefix { return net64(0x5f00, 0, 2, uint16(i)) }

// TransitLocator is the locator of transit j, counted from 1: 5f00:0:3:j::/64.
func TransitLocator(j int) netip.Prefix { return net64(0x5f00, 0, 3, uint16(j)) }

// ClientNet holds every IPv6 client address.
func ClientNet() netip.Prefix { return net64(0x2001, 0xdb8, 0xc, 0) }

// ClientNet4 holds every IPv4 client address.
func ClientNet4() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100}), 24) }

// ClientAddr is client address k, counted from 1: 2001:db8:c::k.
func ClientAddr(k int) netip.Addr { return host(ClientNet(), uint16(k)) }

// ClientAddr4 is IPv4 client address k, counted from 1: 198.51.100.k.
func ClientAddr4(k int) netip.Addr { return host(ClientNet4(), uint16(k)) }

// vips are the service's addresses as its servers have them.
func vips() []netip.Prefix {
	return []netip.Prefix{single(netip.MustParseAddr(VIP)), single(netip.MustParseAddr(VIP4))}
}

// linkNet is the net of one link to the router, which is host 1 on it; the
// node is host 2, and 3 is for an application that shares the node's link.
func linkNet(serial int) netip.Prefix { return net64(0x2001, 0xdb8, 1, uint16(serial)) }

// linkNet4 is the same link's in IPv4: 10.x.y.0/24, x and y of the serial.
func linkNet4(serial int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(serial >> 8), byte(serial)}), 24)
}

func net64(groups ...uint16) netip.Prefix {
	var ip [16]byte
	for i, g := range groups {
		binary.BigEndian.PutUint16(ip[2*i:], g)
	}
	return netip.PrefixFrom(netip.AddrFrom16(ip), 64)
}

// host is an address of a net by the last two bytes.
func host(p netip.Prefix, id uint16) netip.Addr {
	ip := p.Addr().AsSlice()
	binary.BigEndian.PutUint16(ip[len(ip)-2:], binary.BigEndian.Uint16(ip[len(ip)-2:])|id)
	a, _ := netip.AddrFromSlice(ip)
	return a
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// everywhere is the destination of a default route.
func everywhere(gateway netip.Addr) netip.Prefix {
	if gateway.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}
