package plane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"proffer/dataplane/objects"
	"proffer/topo"
	"proffer/wire"
)

// Address is an address of this host at a link, and the prefix that is on the link.
type Address struct {
	Own netip.Addr
	Net netip.Prefix
}

// Addresses are those of this host, by the number of their link.
type Addresses map[int][]Address

// ReadAddresses reads them.
func ReadAddresses() (Addresses, error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for range mostReadings {
		if !errors.Is(err, netlink.ErrDumpInterrupted) { // else the kernel changed some meanwhile
			break
		}
		list, err = netlink.AddrList(nil, netlink.FAMILY_ALL)
	}
	if err != nil {
		return nil, fmt.Errorf("list the host's addresses: %w", err)
	}
	all := Addresses{}
	for _, a := range list {
		on := a.IPNet
		if a.Peer != nil {
			on = a.Peer
		}
		own, is := netip.AddrFromSlice(a.IP)
		far, also := netip.AddrFromSlice(on.IP)
		if bits, _ := on.Mask.Size(); is && also {
			all[a.LinkIndex] = append(all[a.LinkIndex], Address{own.Unmap(), netip.PrefixFrom(far.Unmap(), bits)})
		}
	}
	return all, nil
}

// Speakers are the addresses that a node sends its errors of IPv6 and of IPv4 from, at a link: the link's first, or
// else any of this host's that others reach. Zeros: it has none.
func (all Addresses) Speakers(link int) (from [2][16]byte) {
	for i, four := range []bool{false, true} {
		is := func(a Address) bool {
			return a.Own.Is4() == four && !a.Own.IsLinkLocalUnicast() && !a.Own.IsLoopback()
		}
		others := slices.Concat(slices.Collect(maps.Values(all))...)
		slices.SortFunc(others, func(a, b Address) int { return a.Own.Compare(b.Own) })
		found := append(slices.Clone(all[link]), others...)
		if k := slices.IndexFunc(found, is); k >= 0 {
			from[i] = found[k].Own.As16()
		}
	}
	return from
}

const mostReadings = 8 // of a list that changes

// NewEnd is an end of a tunnel over a link, to an address on it, before its next hop is known.
func NewEnd(dev *net.Interface, own Addresses, to netip.Addr) (e objects.EdgeEdgeEnd, err error) {
	from, err := own.on(dev, to)
	if err != nil {
		return e, err
	}
	e.To.In6U.U6Addr8, e.From.In6U.U6Addr8 = to.As16(), from.As16()
	e.Own = [6]byte(dev.HardwareAddr)
	e.Link, e.Mtu = uint32(dev.Index), uint16(min(dev.MTU, 65535))
	if to.Is4() {
		e.Sum = headerSum(from, to)
	}
	return e, nil
}

// Renewed is an end with its link and this host's addresses of now. Its next hop stays.
func Renewed(was objects.EdgeEdgeEnd, dev *net.Interface, own Addresses) (objects.EdgeEdgeEnd, error) {
	e, err := NewEnd(dev, own, netip.AddrFrom16(was.To.In6U.U6Addr8).Unmap())
	e.Mac, e.Ready, e.Cores = was.Mac, was.Ready, was.Cores
	return e, err
}

// Toward is an end with the neighbour that its packets go to; the zero MAC: it has none, and gets no packets.
func Toward(e objects.EdgeEdgeEnd, mac topo.MAC) objects.EdgeEdgeEnd {
	e.Mac, e.Ready = mac, 0
	if mac != (topo.MAC{}) {
		e.Ready = 1
	}
	return e
}

// From is this host's address at an end.
func From(e *objects.EdgeEdgeEnd) netip.Addr { return netip.AddrFrom16(e.From.In6U.U6Addr8).Unmap() }

// on is this host's address for packets to another host by a link: the address whose prefix has the
// other host in it, the longest of several; else that which the kernel's route prefers; else any of the
// family.
func (all Addresses) on(dev *net.Interface, to netip.Addr) (best netip.Addr, err error) {
	bits, other := -1, netip.Addr{}
	for _, a := range all[dev.Index] {
		switch {
		case a.Own.Is4() != to.Is4() || a.Own.IsLinkLocalUnicast():
		case a.Net.Contains(to) && (a.Net.Bits() > bits || a.Net.Bits() == bits && a.Own == preferred(dev, to)):
			best, bits = a.Own, a.Net.Bits()
		case !other.IsValid():
			other = a.Own
		}
	}
	if !best.IsValid() {
		best = preferred(dev, to)
	}
	if !best.IsValid() {
		best = other
	}
	if !best.IsValid() {
		return best, fmt.Errorf("%s has no address of the family of %v", dev.Name, to)
	}
	return best, nil
}

// preferred is the source that the kernel gives packets to an address by a link, if its route goes there.
func preferred(dev *net.Interface, to netip.Addr) (from netip.Addr) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err == nil && len(routes) > 0 && routes[0].LinkIndex == dev.Index {
		from, _ = netip.AddrFromSlice(routes[0].Src)
	}
	return from.Unmap()
}

// headerSum adds up the outer IPv4 header that bpf/edge/tunnel.h writes, without its first word and
// its length.
func headerSum(from, to netip.Addr) (sum uint32) {
	header := wire.IP{Source: from, Destination: to, HopLimit: wire.DefaultHopLimit}.Around(wire.ProtoUDP, nil)
	for i := 4; i < wire.IPv4Bytes; i += 2 {
		if i != 10 { // the checksum
			sum += uint32(binary.NativeEndian.Uint16(header[i:]))
		}
	}
	return sum
}
