package nexthop

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// answer is whether packets fulfil a condition of a rule: none, some, or all of them.
type answer int

const (
	no answer = iota
	perhaps
	yes
)

// condition is what a rule of routing asks of packets, beside their destination.
type condition struct {
	name  string // as iproute2 spells it
	holds func(p *place, passed bool) answer
}

// place is how the kernel would see this node's packets: it makes them itself (by lo), from its own addresses, as
// root and without a mark; or it passes them on from the link.
type place struct {
	link, vrfLink string
	vrf           uint32         // table of the VRF that the link is in; 0: none
	group         int            // of the link
	own           []netip.Prefix // the sources of the packets that this node makes
	near          []netip.Addr   // addresses of the link, which no packet that is passed on has
}

// place reads from the kernel what rules may ask for.
func (w *Watcher) place() *place {
	p := &place{link: w.dev.Name}
	link, err := netlink.LinkByIndex(w.dev.Index)
	if err != nil { // it is gone, with all of its routes
		return p
	}
	p.link, p.group = link.Attrs().Name, int(link.Attrs().Group)
	if over, err := netlink.LinkByIndex(link.Attrs().MasterIndex); err == nil {
		if vrf, is := over.(*netlink.Vrf); is {
			p.vrf, p.vrfLink = vrf.Table, vrf.Name
		}
	}
	if w.own.IsValid() {
		p.own = append(p.own, w.own)
	}
	addrs, _ := netlink.AddrList(link, netlink.FAMILY_ALL) // without them rules for sources are named
	for _, a := range addrs {
		addr := addrOf(a.IP)
		p.near = append(p.near, addr)
		if !addr.IsLinkLocalUnicast() && (!w.own.IsValid() || w.own.Addr().BitLen() != addr.BitLen()) {
			p.own = append(p.own, alone(addr))
		}
	}
	return p
}

// conditionOf reads an attribute of a rule; bits is the length of the prefix of its sources.
func conditionOf(kind uint16, value []byte, bits int) condition {
	switch kind {
	case unix.FRA_SRC:
		from := netip.PrefixFrom(addrOf(value), bits)
		return condition{"from", func(p *place, passed bool) answer { return p.isFrom(from, passed) }}
	case unix.FRA_IIFNAME:
		name := unix.ByteSliceToString(value)
		return condition{"iif", func(p *place, passed bool) answer {
			return where(passed && (name == p.link || name == p.vrfLink) || !passed && name == "lo")
		}}
	case unix.FRA_OIFNAME: // of sockets that are bound to a link
		name := unix.ByteSliceToString(value)
		return condition{"oif", func(p *place, _ bool) answer {
			if p.vrf != 0 && name == p.vrfLink {
				return perhaps
			}
			return no
		}}
	case unix.FRA_L3MDEV:
		return condition{"l3mdev", func(p *place, _ bool) answer { return where(p.vrf != 0) }}
	case unix.FRA_TUN_ID:
		return constant("tun_id", no)
	case unix.FRA_UID_RANGE: // two numbers; packets that no user sends are root's
		return constant("uidrange", where(number(value) == 0))
	}
	if name, known := ofPackets[kind]; known {
		return constant(name, perhaps)
	}
	return constant(fmt.Sprintf("attribute %d", kind), perhaps)
}

// ofPackets are attributes in which packets to one address differ. Those without a name in x/sys/unix are of Linux 6.13
// and later (linux/fib_rules.h).
var ofPackets = map[uint16]string{
	unix.FRA_IP_PROTO: "ipproto", unix.FRA_SPORT_RANGE: "sport", unix.FRA_DPORT_RANGE: "dport",
	25: "dscp", 26: "flowlabel", 27: "flowlabel", 28: "sport", 29: "dport", 30: "dscp",
}

func constant(name string, is answer) condition {
	return condition{name, func(*place, bool) answer { return is }}
}

func where(is bool) answer {
	if is {
		return yes
	}
	return no
}

// isFrom is whether packets have their sources in a prefix. Those that are passed on may have any but this node's own.
func (p *place) isFrom(from netip.Prefix, passed bool) answer {
	if passed {
		isOwn := func(own netip.Prefix) bool { return own.Bits() <= from.Bits() && own.Contains(from.Addr()) }
		if slices.ContainsFunc(p.own, isOwn) || from.IsSingleIP() && slices.Contains(p.near, from.Addr()) {
			return no
		}
		return perhaps
	}
	in, out := false, false
	for _, own := range p.own {
		switch {
		case own.Addr().BitLen() != from.Addr().BitLen():
		case from.Bits() <= own.Bits() && from.Contains(own.Addr()):
			in = true
		case own.Overlaps(from):
			in, out = true, true
		default:
			out = true
		}
	}
	if in && out {
		return perhaps
	}
	return where(in)
}
