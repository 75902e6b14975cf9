package nexthop

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// drawn is a random set-up of routing in a small space.
type drawn struct {
	rng    *rand.Rand
	family string
	space  func(a, b byte, bits int) netip.Prefix
	by     []netip.Addr // gateways
	own    string       // the source of packets that the host makes
	other  string       // of none
	client string       // the source of those that it passes on
}

func (d drawn) prefix() netip.Prefix {
	return d.space(byte(d.rng.IntN(4))<<6, byte(d.rng.IntN(4))<<6, d.rng.IntN(11))
}

func (d drawn) pick(of ...string) string { return of[d.rng.IntN(len(of))] }

func (d drawn) gateway() string { return d.by[d.rng.IntN(len(d.by))].String() }

func (d drawn) table() string { return d.pick("100", "101", "main") }

// objects are nexthop objects: 1 to 4 by a gateway each, 5 a blackhole, 6 to 8 groups.
func (d drawn) objects() (lines []string) {
	for i := range 4 {
		lines = append(lines, fmt.Sprintf("nexthop add id %d via %s dev eth0", i+1, d.gateway()))
	}
	return append(lines, "nexthop add id 5 blackhole")
}

var groups = []string{"nexthop add id 6 group 1/2", "nexthop add id 7 group 3,3/4,9", "nexthop add id 8 group 1/2 type resilient buckets 8"} // of no family

func (d drawn) routes(n int) (lines []string) {
	for range n {
		dst := d.prefix().String()
		if d.rng.IntN(8) == 0 {
			dst = "default"
		}
		i, j := d.rng.IntN(3), 1+d.rng.IntN(2)
		by := d.pick("via "+d.gateway()+" dev eth0", "via "+d.gateway()+" dev eth0", "dev eth0", "nhid "+d.pick("1", "2", "3", "4", "5", "6", "7", "8"),
			fmt.Sprintf("nexthop via %s dev eth0 nexthop via %s dev eth0", d.by[i], d.by[(i+j)%3]))
		if kind := d.pick("", "", "", "unreachable", "throw", "blackhole"); kind != "" {
			dst, by = kind+" "+dst, ""
		}
		lines = append(lines, fmt.Sprintf("route add %s table %s metric %s %s", dst, d.table(), d.pick("10", "20"), by))
	}
	return lines
}

func (d drawn) rules(n int) (lines []string) {
	for range n {
		which := d.pick("", "", "to "+d.prefix().String(), "to "+d.prefix().String())
		if d.rng.IntN(2) == 0 {
			which += d.pick(" fwmark 7", " fwmark 0x10/0x6", " from "+d.own, " from "+d.own, " from "+d.other, " iif lo", " iif lo", " iif eth0", " iif eth0",
				" iif gone0", " oif eth0", " uidrange 0-99", " uidrange 1-99", " tos 0x10", " ipproto udp", " dport 53", " l3mdev", " iif lo from "+d.own)
		}
		ofSome := slices.ContainsFunc([]string{"tos", "port", "ipproto", "l3mdev", d.other}, func(s string) bool { return strings.Contains(which, s) })
		if which != "" && d.rng.IntN(4) == 0 && !ofSome {
			which = "not " + which
		}
		lookup := "lookup " + d.table()
		then := d.pick(lookup, lookup, lookup+" suppress_prefixlength "+d.pick("0", "9", "35", "40"), lookup+" suppress_ifgroup "+d.pick("3", "4"), "blackhole", "prohibit", "nop")
		if d.rng.IntN(2) > 0 {
			then = d.pick("goto 650", "goto 700", "goto 750", lookup)
		}
		if strings.Contains(which, "l3mdev") {
			then = "pref 9" // its table is the VRF's
		}
		lines = append(lines, fmt.Sprintf("rule add %s pref %d %s", which, 500+50*d.rng.IntN(6), then))
	}
	return append(lines, d.pick("rule del pref 32766", "rule list", "rule list"))
}

// isTarget is whether the packets to an address are the host's own.
func (d drawn) isTarget(a, b int) bool { return (a+b)%2 == 0 }

// targets are these addresses.
func (d drawn) targets() (all []netip.Addr) {
	for a := range 16 {
		for b := range 16 {
			if d.isTarget(a, b) {
				all = append(all, d.space(byte(a)<<4, byte(b)<<4, 16).Addr().Next())
			}
		}
	}
	return all
}

// packet is one to ask the kernel about.
func (d drawn) packet(passed bool) netlink.RouteGetOptions {
	root := uint32(0)
	o := netlink.RouteGetOptions{FIBMatch: true, UID: &root, SrcAddr: net.ParseIP(d.own)}
	if passed {
		o.SrcAddr, o.Iif = net.ParseIP(d.client), "eth0"
	}
	return o
}
