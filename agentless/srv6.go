package agentless

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"proffer/topo"
	"proffer/wire"
)

// behaviour is a SID's, as iproute2 spells it and as netlink has it.
type behaviour struct {
	why      string
	spelt    string
	action   int
	argument uint16
	fits     func(*netlink.SEG6LocalEncap) bool
}

// behaviours are the kernel's by delivery. A next hop of zeros is the packet's own destination, so
// that a single SID serves all VIPs.
func behaviours() map[topo.Delivery]behaviour {
	return map[topo.Delivery]behaviour{
		topo.ByDT6: {
			"the kernel takes IPv6 packets out of their outer header, and to their VIP on lo", "End.DT6 table local",
			nl.SEG6_LOCAL_ACTION_END_DT6, wire.ArgumentIpv6,
			func(e *netlink.SEG6LocalEncap) bool { return e.Table == unix.RT_TABLE_LOCAL },
		},
		topo.ByDX6: {
			"the kernel takes IPv6 packets out of their outer header, and forwards them by the route to their VIP", "End.DX6 nh6 ::",
			nl.SEG6_LOCAL_ACTION_END_DX6, wire.ArgumentIpv6,
			func(e *netlink.SEG6LocalEncap) bool { return unset(e.In6Addr) },
		},
		topo.ByDX4: {
			"the kernel takes IPv4 packets out of their outer header, and by the route to their VIP", "End.DX4 nh4 0.0.0.0",
			nl.SEG6_LOCAL_ACTION_END_DX4, wire.ArgumentIpv4,
			func(e *netlink.SEG6LocalEncap) bool { return unset(e.InAddr) },
		},
	}
}

func unset(ip net.IP) bool { return ip == nil || ip.IsUnspecified() }

// seg6 are the steps of SIDs.
func (s *Setup) seg6() {
	all := behaviours()
	for _, d := range topo.Deliveries() {
		b, ends := all[d]
		for _, locator := range s.locators(d) {
			if ends {
				sid := wire.SID{Locator: locator, Function: wire.Deliver, Generation: b.argument}.Addr()
				s.add(s.sid(sid, b))
			}
		}
	}
	if s.has(func(u Use) bool { return u.Via }) {
		const why = "packets come with a segment routing header, as they visit other SIDs before"
		s.add(s.atLeast("net/ipv6/conf/all/seg6_enabled", 1, why))
		s.add(s.atLeast("net/ipv6/conf/"+s.Link+"/seg6_enabled", 1, why))
	}
	for _, vip := range s.vips(s.isBehind) {
		s.add(s.behind(vip))
	}
}

// forwarding is that to hosts behind the server.
func (s *Setup) forwarding() {
	for _, vip := range s.vips(s.isBehind) {
		if vip.Is4() {
			s.add(s.atLeast("net/ipv4/conf/all/forwarding", 1, "the kernel forwards to the host behind it"))
			s.add(s.atLeast("net/ipv4/conf/"+s.Link+"/forwarding", 1, "and does so with packets of "+s.Link))
		} else {
			s.add(s.atLeast("net/ipv6/conf/all/forwarding", 1, "the kernel forwards to the host behind it; "+
				"a link with routes from router advertisements needs accept_ra=2 then"))
		}
	}
}

// sid is the route of a SID. An SRH is there if the service's packets visit others before.
func (s *Setup) sid(sid netip.Addr, b behaviour) Step {
	to := netip.PrefixFrom(sid, sid.BitLen())
	return Step{
		Why:  b.why,
		Do:   fmt.Sprintf("ip -6 route replace %s encap seg6local action %s dev %s", to, b.spelt, s.Link),
		Undo: fmt.Sprintf("ip -6 route del %s", to),
		lacks: func(h *host) (string, error) {
			links, err := h.linksOf(sid)
			encap := h.seg6local(sid, s.Link)
			switch {
			case err != nil:
				return "", err
			case links != nil:
				return fmt.Sprintf("%s is an address of %s, so that the packets are this host's own: take it away", sid, strings.Join(links, ", ")), nil
			case encap == nil:
				return fmt.Sprintf("no seg6local route to %s, or another route comes before it", to), nil
			case encap.Action != b.action || !b.fits(encap):
				return fmt.Sprintf("the route to %s does %q, want %q", to, strings.TrimSpace(encap.String()), b.spelt), nil
			}
			return "", nil
		},
	}
}

// behind is the route to a VIP that another host or a container has.
func (s *Setup) behind(vip netip.Addr) Step {
	return Step{
		Why: fmt.Sprintf("a route leads to the VIP %s behind this host, such as: ip route add %s via ADDRESS dev LINK", vip, netip.PrefixFrom(vip, vip.BitLen())),
		lacks: func(h *host) (string, error) {
			link, local, err := h.route(vip)
			switch {
			case err != nil:
				return err.Error(), nil
			case local:
				return fmt.Sprintf("%s is an address of this host itself: take it away, or set the server up without --behind, by delivery: dt6 in IPv6", vip), nil
			case link == s.Link:
				return fmt.Sprintf("its route leads to %s, back to the LB", link), nil
			}
			return "", nil
		},
	}
}
