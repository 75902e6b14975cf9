package agentless

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"proffer/hostcheck"
)

// Step is a thing that the server needs.
type Step struct {
	Why  string // for people; a comment of the script
	Do   string // the command; empty: none can be given
	Undo string // the command that takes it back; empty: nothing does

	// lacks returns the reason why the host does not have it, or nothing.
	lacks func(*host) (string, error)
}

// settings are those of the kernel for IPv4.
func (s *Setup) settings() {
	if s.has(func(u Use) bool { return isIPv4(u) && s.onLo(u) }) {
		s.add(s.atLeast("net/ipv4/conf/all/arp_ignore", 1, "no link answers ARP for a VIP, which is the LB's there"))
		s.add(s.atLeast("net/ipv4/conf/all/arp_announce", 2, "no link asks ARP with a VIP as the sender"))
	}
	if s.has(func(u Use) bool { return isIPv4(u) && !u.Delivery.Tunnel() }) {
		s.add(s.loose(s.Link, ofClients))
	} else if s.has(overIPv4) {
		s.add(s.loose(s.Link, ofLBs))
	}
}

// atLeast is a setting of at least a value.
func (s *Setup) atLeast(path string, value int, why string) Step {
	return Step{
		Why: why, Do: fmt.Sprintf("sysctl -qw %s=%d", path, value),
		lacks: func(*host) (string, error) {
			is, err := hostcheck.Setting(path)
			if err != nil || is >= value {
				return "", err
			}
			return fmt.Sprintf("%s is %d", path, is), nil
		},
	}
}

// The packets that a filter of sources may drop. No answer goes to an LB, and the kernel looks all
// the same for a route to it, where the outer header is IPv4's; IPv6 has no such filter.
const (
	ofClients = "packets of clients come in by %s, by whichever link their answers leave"
	ofLBs     = "VXLAN packets of LBs come in by %s, by whichever link a route leads to their IPv4 addresses, such as the default route"
)

// loose is a filter of IPv4 sources that lets packets in by a link although a route to their source may
// lead to another. The kernel takes the larger value of the link's and that of all links.
func (s *Setup) loose(link, why string) Step {
	path := "net/ipv4/conf/" + link + "/rp_filter"
	return Step{
		Why: fmt.Sprintf(why, link),
		Do:  "sysctl -qw " + path + "=2",
		lacks: func(*host) (string, error) {
			own, all, err := hostcheck.Filters(link)
			if err != nil || max(own, all) != 1 {
				return "", err
			}
			return fmt.Sprintf("%s is %d and net/ipv4/conf/all/rp_filter is %d, which drops them", path, own, all), nil
		},
	}
}

// toLBs is the link towards the LBs.
func (s *Setup) toLBs() Step {
	return Step{
		Why: fmt.Sprintf("%s is the link towards the LBs", s.Link),
		lacks: func(h *host) (string, error) {
			link, err := h.link(s.Link)
			if err != nil || link != nil {
				return "", err
			}
			return fmt.Sprintf("no link %s: name another one by --link", s.Link), nil
		},
	}
}

// IsLinkName reports whether a link may have a name, and a shell takes it as one word: Linux has names
// of 1 to 15 bytes without white space, slashes and colons.
func IsLinkName(name string) bool {
	const others = "._@+-"
	odd := func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune(others, r))
	}
	return name != "" && len(name) < unix.IFNAMSIZ && name != "." && name != ".." && name[0] != '-' && !strings.ContainsFunc(name, odd)
}

// address is a VIP on lo, and on no other link but vxlan devices, which answer nothing.
func (s *Setup) address(vip netip.Addr) Step {
	at := netip.PrefixFrom(vip, vip.BitLen())
	return Step{
		Why:  fmt.Sprintf("the VIP %s is an address of this host, which no link announces", vip),
		Do:   fmt.Sprintf("ip addr replace %s dev lo", at),
		Undo: fmt.Sprintf("ip addr del %s dev lo", at),
		lacks: func(h *host) (string, error) {
			links, err := h.linksOf(vip)
			others := slices.DeleteFunc(slices.Clone(links), func(link string) bool { return link == "lo" || s.hasDevice(link) })
			switch {
			case err != nil:
				return "", err
			case len(others) > 0:
				return fmt.Sprintf("%s is an address of %s, too, which answers for it: take it away there", vip, strings.Join(others, ", ")), nil
			case !slices.Contains(links, "lo"):
				return fmt.Sprintf("%s is no address of lo", vip), nil
			}
			return "", nil
		},
	}
}

// own is the address that the LB sends to.
func (s *Setup) own(address netip.Addr) Step {
	return Step{
		Why: fmt.Sprintf("%s is an address of this host, which the LB sends to", address),
		lacks: func(h *host) (string, error) {
			links, err := h.linksOf(address)
			if err != nil || len(links) > 0 {
				return "", err
			}
			return fmt.Sprintf("no link has it: give it to %s, or name another address in the LB's configuration", s.Link), nil
		},
	}
}
