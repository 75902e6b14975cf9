package testbed

import (
	"encoding/binary"
	"net/netip"
)

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
