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

// layer is a rule of routing: where its table has no route for an address, the next layer decides.
type layer struct {
	table    uint32
	dead     bool         // no table: no packet leaves
	all      netip.Prefix // of its family
	to       netip.Prefix // its destinations
	inverted bool         // all others
	suppress int          // prefixes of so many bits and shorter decide nothing; -1: all decide
}

// layers are the rules of both families in the order in which the kernel asks them. A rule that asks for more than
// the destination, such as the source or a mark, is for no packet of ours, and its inverse for each: next hops are
// copied for all packets, which have no mark.
func (w *Watcher) layers() (all []layer, interrupted error) {
	var odd []string
	for _, family := range families() {
		var rules []rule
		head := header(make([]byte, unix.SizeofRtMsg)) // struct fib_rule_hdr is as long
		head[0] = byte(family)
		err := dump(unix.RTM_GETRULE, unix.RTM_NEWRULE, head, func(m []byte) {
			if r, ok := parseRule(m); ok && int(m[0]) == family {
				rules = append(rules, r)
			}
		})
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			interrupted = err
		} else if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) { // a kernel without rules
			all = append(all, layer{table: unix.RT_TABLE_MAIN, all: wholeOf(head[0]), to: wholeOf(head[0]), suppress: -1})
			continue
		} else if err != nil {
			return nil, fmt.Errorf("list the rules of routing: %w", err)
		}
		of, left := ordered(rules)
		all, odd = append(all, of...), append(odd, left...)
	}
	if list := strings.Join(odd, ", "); list != w.odd {
		w.odd = list
		if list != "" {
			w.log.Warn("rules of routing that ask for more than the destination are followed for no packet", "link", w.dev.Name, "rules", list)
		}
	}
	return all, interrupted
}

// rule is a layer among the rules, or a jump.
type rule struct {
	layer
	priority uint32
	action   uint8
	target   uint32 // the priority to go on at
	odd      string // other things than the destination
}

// ordered are the layers of a family's rules, and the rules that are left out.
func ordered(rules []rule) (all []layer, odd []string) {
	slices.SortStableFunc(rules, func(a, b rule) int { return cmp.Compare(a.priority, b.priority) })
	from := uint32(0) // a jump leads there
	for _, r := range rules {
		switch jump := r.action == unix.FR_ACT_GOTO; {
		case r.priority < from || r.action == unix.FR_ACT_NOP:
		case r.odd == "" && jump && r.to.Bits() <= 0 && !r.inverted:
			if slices.ContainsFunc(rules, func(other rule) bool { return other.priority == r.target }) { // else it is none
				from = r.target
			}
		case r.odd != "" || jump:
			odd = append(odd, fmt.Sprintf("%d (%s)", r.priority, cmp.Or(r.odd, "a jump for some destinations")))
		default:
			all = append(all, r.layer)
		}
	}
	return all, odd
}

// parseRule reads struct fib_rule_hdr, laid out as struct rtmsg, and its attributes.
func parseRule(m []byte) (r rule, ok bool) {
	if len(m) < unix.SizeofRtMsg {
		return r, false
	}
	const inverted = 2 // FIB_RULE_INVERT
	r = rule{action: m[7], layer: layer{table: uint32(m[4]), all: wholeOf(m[0]), suppress: -1}}
	r.to, r.inverted = r.all, binary.NativeEndian.Uint32(m[8:])&inverted != 0
	r.dead = r.action == unix.FR_ACT_BLACKHOLE || r.action == unix.FR_ACT_UNREACHABLE || r.action == unix.FR_ACT_PROHIBIT
	var odd []string
	if m[3] != 0 {
		odd = append(odd, "tos")
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
		case unix.FRA_PROTOCOL, unix.FRA_PAD, unix.FRA_FLOW:
		default:
			if name := nameOf(kind); !slices.Contains(odd, name) {
				odd = append(odd, name)
			}
		}
	}
	if r.odd = strings.Join(odd, ", "); r.odd != "" && r.inverted { // for all packets without the mark, say
		r.odd, r.to, r.inverted = "", r.all, false
	}
	return r, r.to.IsValid()
}

// wholeOf is the prefix of all addresses of a family.
func wholeOf(family uint8) netip.Prefix { return netip.PrefixFrom(zeroOf(family), 0) }

// nameOf is the spelling in iproute2 of a condition of a rule.
func nameOf(kind uint16) string {
	switch kind {
	case unix.FRA_SRC:
		return "from"
	case unix.FRA_IIFNAME:
		return "iif"
	case unix.FRA_OIFNAME:
		return "oif"
	case unix.FRA_FWMARK, unix.FRA_FWMASK:
		return "fwmark"
	default:
		return fmt.Sprintf("attribute %d", kind)
	}
}

// tableOf is a table of routes of one family.
type tableOf struct {
	all netip.Prefix // of the family
	id  uint32
}

// overlay are the routes of several layers as one table: an address has the route of the first layer that decides.
func overlay(layers []layer, tables map[tableOf][]route) []route {
	var parts [][]route
	for _, l := range layers {
		if part := l.part(tables[tableOf{l.all, l.table}]); len(part) > 0 {
			parts = append(parts, part)
		}
	}
	if len(parts) == 1 && !slices.ContainsFunc(parts[0], func(r route) bool { return r.through && !r.dead }) {
		return parts[0]
	}
	var prefixes []route
	for _, part := range parts {
		prefixes = append(prefixes, part...)
	}
	slices.SortFunc(prefixes, route.compare)
	prefixes = slices.CompactFunc(prefixes, func(a, b route) bool { return a.prefix == b.prefix })
	around := make([][]route, len(parts)) // of each part, those around the present prefix, the longest last
	for i, p := range prefixes {
		decided := route{dead: true}
		for k := len(parts) - 1; k >= 0; k-- {
			around[k] = outside(around[k], p)
			if len(parts[k]) > 0 && parts[k][0].prefix == p.prefix {
				around[k], parts[k] = append(around[k], parts[k][0]), parts[k][1:]
			}
			if n := len(around[k]); n > 0 && !around[k][n-1].through {
				decided = around[k][n-1]
			}
		}
		decided.prefix = p.prefix
		prefixes[i] = decided
	}
	return prefixes
}

// part are the routes of a layer for its destinations.
func (l layer) part(table []route) (part []route) {
	if l.dead {
		table = []route{{prefix: l.all, dead: true}}
	}
	to, edge := route{prefix: l.to, through: true}, l.inverted // edge: a route begins at l.to
	for _, r := range best(table) {
		r.through = r.through || !r.dead && r.prefix.Bits() <= l.suppress
		if to.contains(r) != l.inverted {
			part = append(part, r)
			edge = edge || r.prefix == l.to
		} else if !l.inverted && r.contains(to) {
			to = r
			to.prefix = l.to
		}
	}
	if l.inverted || !edge && !to.through {
		part = append(part, to)
		slices.SortFunc(part, route.compare)
	}
	return part
}
