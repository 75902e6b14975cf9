package plane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"proffer/dataplane/objects"
	"proffer/wire"
)

// NewEnd is an end of a tunnel over a link, to an address on it, before its next hop is known.
func NewEnd(dev *net.Interface, to netip.Addr) (e objects.EdgeEdgeEnd, err error) {
	from, err := ownOn(dev, to)
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

// ownOn is this host's address on a link, of the family of another host's there.
func ownOn(dev *net.Interface, to netip.Addr) (netip.Addr, error) {
	addrs, err := dev.Addrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("list the addresses of %s: %w", dev.Name, err)
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Addr().Is4() == to.Is4() && !p.Addr().IsLinkLocalUnicast() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no address of the family of %v", dev.Name, to)
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

// AttachOne puts a program on a link, in the driver if it can and else in the stack. It is
// taken off when the link is closed.
func AttachOne(prog *ebpf.Program, dev *net.Interface) (link.Link, error) {
	var errs []error
	for _, mode := range []link.XDPAttachFlags{link.XDPDriverMode, link.XDPGenericMode} {
		on, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: dev.Index, Flags: mode})
		if err == nil {
			return on, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
