package nexthop

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// layers are the rules of both families as layers, in the order that the kernel asks them: for the packets that
// this node makes, and for those that it passes on. A rule that is for some of these packets alone is followed for
// none of them, and named in the log.
func (w *Watcher) layers() (own, passed []layer, interrupted error) {
	var odd []string
	at := w.place()
	for _, family := range families() {
		rules, err := rulesOf(family)
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			interrupted = err
		} else if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) { // a kernel without rules
			main := layer{table: unix.RT_TABLE_MAIN, all: wholeOf(uint8(family)), region: region{to: wholeOf(uint8(family))}, suppress: -1}
			own, passed = append(own, main), append(passed, main)
			continue
		} else if err != nil {
			return nil, nil, fmt.Errorf("list the rules of routing: %w", err)
		}
		ofOwn, odd1 := at.ordered(rules, false)
		ofPassed, odd2 := at.ordered(rules, true)
		own, passed, odd = append(own, ofOwn...), append(passed, ofPassed...), append(append(odd, odd1...), odd2...)
	}
	w.name(odd)
	return own, passed, interrupted
}

// name logs the rules that are followed for no packets, when they change.
func (w *Watcher) name(odd []string) {
	slices.Sort(odd)
	list := strings.Join(slices.Compact(odd), ", ")
	if list != w.odd && list != "" {
		w.log.Warn("rules of routing that are for some packets to an address alone are followed for none", "link", w.dev.Name, "rules", list)
	}
	w.odd = list
}

// rulesOf reads the rules of a family in the kernel's order.
func rulesOf(family int) (all []rule, err error) {
	head := header(make([]byte, unix.SizeofRtMsg)) // struct fib_rule_hdr is as long
	head[0] = byte(family)
	err = dump(unix.RTM_GETRULE, unix.RTM_NEWRULE, head, func(m []byte) {
		if r, ok := parseRule(m); ok && int(m[0]) == family {
			all = append(all, r)
		}
	})
	slices.SortStableFunc(all, func(a, b rule) int { return cmp.Compare(a.priority, b.priority) })
	return all, err
}

// rule is a layer among the rules, or a jump.
type rule struct {
	layer
	priority uint32
	action   uint8
	target   uint32 // the priority to go on at
	ifgroup  int    // routes by links of this group decide nothing; -1: none
	vrf      bool   // the table is the VRF's
	inverted bool   // for the packets that it would not be for
	asks     []condition
}

// jump leads past the rules before a priority.
type jump struct {
	target uint32
	of     region
}

// mostRegions bounds the parts that jumps cut a rule's destinations into.
const mostRegions = 64

// ordered are the layers of a family's rules for packets that are passed on, or that this node makes; and the rules
// that are for some of these alone.
func (p *place) ordered(rules []rule, passed bool) (all []layer, odd []string) {
	var jumps []jump
	for _, r := range rules {
		jumps = slices.DeleteFunc(jumps, func(j jump) bool { return j.target <= r.priority })
		where, left := r.regions(p, passed)
		if left != "" {
			odd = append(odd, fmt.Sprintf("%d (%s)", r.priority, left))
		}
		for _, j := range jumps {
			where = without(where, j.of)
		}
		if len(where) > mostRegions {
			odd = append(odd, fmt.Sprintf("%d (too many jumps)", r.priority))
			continue
		}
		isTarget := func(other rule) bool { return other.priority == r.target }
		for _, g := range where {
			switch {
			case r.action == unix.FR_ACT_NOP:
			case r.action != unix.FR_ACT_GOTO:
				all = append(all, r.over(g, p))
			case slices.ContainsFunc(rules, isTarget): // else it leads nowhere, and the next rule decides
				jumps = append(jumps, jump{r.target, g})
			}
		}
	}
	return all, odd
}

// over is the rule's layer for some of its destinations.
func (r *rule) over(g region, p *place) layer {
	l := r.layer
	l.region = g
	if r.vrf {
		l.table = p.vrf
	}
	if r.ifgroup == p.group {
		l.suppress = l.all.Addr().BitLen()
	}
	return l
}

// regions are the destinations of a rule for packets; left names the conditions that only some of these fulfil.
func (r *rule) regions(p *place, passed bool) (where []region, left string) {
	is := yes
	var some []string
	for _, c := range r.asks {
		a := c.holds(p, passed)
		if is = min(is, a); a == perhaps {
			some = append(some, c.name)
		}
	}
	switch {
	case is == perhaps:
		slices.Sort(some)
		return nil, strings.Join(slices.Compact(some), ", ")
	case r.inverted && is == no:
		return []region{{to: r.all}}, ""
	case r.inverted:
		return without([]region{{to: r.all}}, r.region), ""
	case is == no:
		return nil, ""
	}
	return []region{r.region}, ""
}

// parseRule reads struct fib_rule_hdr, laid out as struct rtmsg, and its attributes.
func parseRule(m []byte) (r rule, ok bool) {
	if len(m) < unix.SizeofRtMsg {
		return r, false
	}
	const inverted = 2 // FIB_RULE_INVERT
	r = rule{action: m[7], layer: layer{table: uint32(m[4]), all: wholeOf(m[0]), suppress: -1}, ifgroup: -1}
	r.to, r.inverted = r.all, binary.NativeEndian.Uint32(m[8:])&inverted != 0
	r.dead = r.action == unix.FR_ACT_BLACKHOLE || r.action == unix.FR_ACT_UNREACHABLE || r.action == unix.FR_ACT_PROHIBIT
	mark, mask := uint32(0), uint32(0)
	if m[3] != 0 {
		r.asks = append(r.asks, constant("tos", perhaps)) // the class of the packet inside
	}
	for kind, value := range attributes(m[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.FRA_DST:
			r.to = netip.PrefixFrom(addrOf(value), int(m[1]))
		case unix.FRA_PRIORITY:
			r.priority = number(value)
		case unix.FRA_TABLE:
			r.table = number(value)
		case unix.FRA_GOTO:
			r.target = number(value)
		case unix.FRA_SUPPRESS_PREFIXLEN:
			r.suppress = int(int32(number(value)))
		case unix.FRA_SUPPRESS_IFGROUP:
			r.ifgroup = int(int32(number(value)))
		case unix.FRA_FWMARK:
			mark = number(value)
		case unix.FRA_FWMASK:
			mask = number(value)
		case unix.FRA_PROTOCOL, unix.FRA_PAD, unix.FRA_FLOW:
		default:
			r.asks = append(r.asks, conditionOf(kind, value, int(m[2])))
		}
		r.vrf = r.vrf || kind == unix.FRA_L3MDEV
	}
	if mark&mask != 0 { // our packets have none
		r.asks = append(r.asks, constant("fwmark", no))
	}
	return r, r.to.IsValid()
}

// wholeOf is the prefix of all addresses of a family.
func wholeOf(family uint8) netip.Prefix { return netip.PrefixFrom(zeroOf(family), 0) }
