package testbed

import (
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
