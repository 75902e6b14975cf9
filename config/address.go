package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"proffer/schema"
	"proffer/topo"
)

// Patterns of addresses and prefixes, for the JSON Schemas.
const (
	anyAddress = "^[0-9A-Fa-f:.]+$"
	anyPrefix  = "^[0-9A-Fa-f:.]+/[0-9]{1,3}$"
)

// ParseLocator reads the locator of a node, as the files spell it.
func ParseLocator(s string) (netip.Prefix, error) {
	return Locator().Parse(s)
}

func Locator() schema.Kind[netip.Prefix] {
	const want = "an IPv6 /64 prefix such as 5f00:0:1:1::/64"
	return schema.Text(want, func(s string) (netip.Prefix, error) {
		if p, err := netip.ParsePrefix(s); err != nil || p.Bits() != 64 {
			return netip.Prefix{}, schema.ErrNot
		}
		return prefix(s)
	}).Like("^[0-9A-Fa-f:]+/64$")
}

// DomainPrefix is a prefix of SR nodes. A prefix around all addresses would be no
// DomainPrefix at all.
func DomainPrefix() schema.Kind[netip.Prefix] {
	return schema.Text("an IPv6 prefix such as 5f00:0:1::/48", prefix).Like(anyPrefix)
}

// prefix reads an IPv6 prefix that packets can come from and go to.
func prefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil || !p.Addr().Is6():
		return netip.Prefix{}, schema.ErrNot
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("has bits behind the prefix (write %s)", p.Masked())
	case unusable(p.Addr()) != "":
		return netip.Prefix{}, errors.New("is " + unusable(p.Addr()))
	}
	return p, nil
}

func ClientAddress() schema.Kind[netip.Addr] {
	const want = "an IPv6 or IPv4 address that clients can reach, such as 2001:db8:f::1 or 192.0.2.1"
	return schema.Text(want, address).Like(anyAddress)
}

// HostAddress is that of a server, a node or an LB.
func HostAddress(host string) schema.Kind[netip.Addr] {
	return schema.Text("the "+host+"'s IPv6 or IPv4 address, such as 2001:db8:2::3 or 10.0.0.3", address).Like(anyAddress)
}

// publicAddress is an address that source NAT gives to flows.
func publicAddress(family, example string) schema.Kind[netip.Addr] {
	return schema.Text("an "+family+" address such as "+example, address).Like(anyAddress)
}

// sid is the address of a segment.
func sid() schema.Kind[netip.Addr] {
	const want = "an IPv6 address such as 5f00:0:9:1::1"
	return schema.Text(want, func(s string) (netip.Addr, error) {
		a, err := address(s)
		if err == nil && a.Is4() {
			return a, schema.ErrNot
		}
		return a, err
	}).Like("^[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*$")
}

// address reads an address that packets can be sent to from elsewhere.
func address(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil || a.Zone() != "":
		return netip.Addr{}, schema.ErrNot
	case a.Is4In6():
		return netip.Addr{}, fmt.Errorf("is IPv4 written as IPv6 (write %s)", a.Unmap())
	case unusable(a) != "":
		return netip.Addr{}, errors.New("is " + unusable(a))
	}
	return a, nil
}

// unusable names the scope of an address that no other host can be reached at.
func unusable(a netip.Addr) string {
	switch {
	case a.IsUnspecified():
		return "unspecified"
	case a.IsLoopback():
		return "loopback"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case a.IsMulticast():
		return "multicast"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "broadcast"
	default:
		return ""
	}
}

// LinkAddress is a unicast link-layer address: bit 0 of the first byte marks a group
// (IEEE 802), and zero would say that there is none.
func LinkAddress() schema.Kind[topo.MAC] {
	const want = "the link address of one host, such as 02:00:00:00:00:01"
	return schema.TextOrNumber(want, func(s string) (topo.MAC, error) {
		hw, err := net.ParseMAC(s)
		if err != nil || len(hw) != len(topo.MAC{}) || s[2] != ':' || hw[0]&1 != 0 || topo.MAC(hw) == (topo.MAC{}) {
			return topo.MAC{}, schema.ErrNot
		}
		return topo.MAC(hw), nil
	}).Spelt(func(m topo.MAC) string { return net.HardwareAddr(m[:]).String() }).Like("^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}$")
}
