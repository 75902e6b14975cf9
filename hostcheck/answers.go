package hostcheck

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
)

// Answers returns advice for each way in which this host draws packets for its VIPs to itself, past the LB: by a link
// that answers for a VIP, or asks with a VIP as the sender.
func Answers(link string, vips []netip.Addr) (advice []string, err error) {
	dev, err := netlink.LinkByName(link)
	if err != nil {
		return nil, fmt.Errorf("check link %q: %w", link, err)
	}
	var quiet []string // VIPs of IPv4 on links without neighbours alone
	for _, vip := range vips {
		on, err := Holders(vip)
		if err != nil {
			return advice, err
		}
		speaks := false
		for _, o := range on {
			if !o.silent {
				speaks, advice = true, append(advice, o.moved(vip))
			}
		}
		if vip.Is4() && len(on) > 0 && !speaks {
			quiet = append(quiet, vip.String())
		}
	}
	if len(quiet) == 0 || dev.Attrs().RawFlags&noNeighbours != 0 {
		return advice, nil
	}
	list := strings.Join(quiet, ", ")
	advice = append(advice, arp(link, "arp_ignore", 1, isQuiet, "answers ARP for the VIP "+list+", so its packets may come here past the LB")...)
	return append(advice, arp(link, "arp_announce", 2, isUnspoken, "asks ARP with the VIP "+list+" as the sender, so neighbours may send its packets here past the LB")...), nil
}

// isQuiet: no link answers for an address that it does not have itself. 3 answers for all but those of scope host.
func isQuiet(arpIgnore int) bool { return arpIgnore == 1 || arpIgnore == 2 || arpIgnore == 8 }

func isUnspoken(arpAnnounce int) bool { return arpAnnounce >= 2 }

// arp returns advice for a setting, of which the kernel takes the larger value of the link's and that of all links.
func arp(link, name string, value int, good func(int) bool, then string) []string {
	own, err := Setting(setting(4, link, name))
	all, errAll := Setting(setting(4, "all", name))
	if err != nil || errAll != nil || good(max(own, all)) {
		return nil
	}
	of := "all"
	if own > value && !good(own) {
		of = link
	}
	return []string{fmt.Sprintf("this host %s: `sysctl -qw %s=%d`", then, setting(4, of, name), value)}
}

// noNeighbours are the flags of links that resolve none: loopback, dummy links.
const noNeighbours = 1<<3 | 1<<7 // IFF_LOOPBACK, IFF_NOARP

// Holder is a link that has an address.
type Holder struct {
	Link   string
	bits   int
	silent bool // it answers no neighbours
}

// moved is the advice to take a VIP away from a link.
func (h Holder) moved(vip netip.Addr) string {
	asks := "ARP"
	if vip.Is6() {
		asks = "neighbour solicitations"
	}
	return fmt.Sprintf("%s answers %s for the VIP %s, so its packets come here past the LB: `ip addr replace %s dev lo`, `ip addr del %s dev %[1]s`",
		h.Link, asks, vip, netip.PrefixFrom(vip, vip.BitLen()), netip.PrefixFrom(vip, h.bits))
}

// Holders are the links that have an address.
func Holders(a netip.Addr) (on []Holder, err error) {
	family := netlink.FAMILY_V6
	if a.Is4() {
		family = netlink.FAMILY_V4
	}
	all, err := netlink.AddrList(nil, family)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, at := range all {
		if !at.IP.Equal(net.IP(a.AsSlice())) {
			continue
		}
		l, err := netlink.LinkByIndex(at.LinkIndex)
		if err != nil {
			return nil, fmt.Errorf("find the link of address %s: %w", a, err)
		}
		bits, _ := at.Mask.Size()
		on = append(on, Holder{l.Attrs().Name, bits, l.Attrs().RawFlags&noNeighbours != 0})
	}
	return on, nil
}
