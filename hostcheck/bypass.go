package hostcheck

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"proffer/topo"
)

// Bypass returns advice for each prefix of an edge LB that this host routes, as long as no program of the
// LB takes its packets first: then they pass the network functions by, and a connection behind source NAT
// ends when its own address gets out.
func Bypass(lb *topo.EdgeLB) (advice []string, err error) {
	rules, err := dropping()
	if err != nil {
		return nil, fmt.Errorf("read the rules of routing: %w", err)
	}
	check := func(p netip.Prefix, link, way string) {
		want := dropRule{link: link, to: p}
		if way == "from" {
			want = dropRule{link: link, from: p}
		}
		if !forwards(p, link) || covered(rules, want) {
			return
		}
		family := "ip"
		if p.Addr().Is6() {
			family = "ip -6"
		}
		advice = append(advice, fmt.Sprintf("packets %s %v pass the network functions by when this daemon does not run: `%s rule add iif %s %s %v blackhole`", way, p, family, link, way, p))
	}
	for _, s := range lb.Services {
		for _, p := range s.Prefixes {
			check(p, lb.Clients, "from")
			check(p, lb.World, "to")
		}
	}
	for _, p := range lb.Public {
		check(p, lb.World, "to")
	}
	return advice, nil
}

// forwards reports whether the kernel forwards packets of a prefix's family that come by a link.
func forwards(p netip.Prefix, link string) bool {
	path := "/proc/sys/net/ipv4/conf/" + link + "/forwarding"
	if p.Addr().Is6() {
		path = "/proc/sys/net/ipv6/conf/all/forwarding"
	}
	text, err := os.ReadFile(path)
	return err == nil && strings.TrimSpace(string(text)) != "0"
}

// dropRule is a rule of routing that drops packets that came by a link; the zero Prefix: any.
type dropRule struct {
	link     string
	from, to netip.Prefix
	family   uint8 // of a rule of the kernel
}

// covered reports whether any of the rules drops all packets that want does.
func covered(rules []dropRule, want dropRule) bool {
	covers := func(a, b netip.Prefix) bool {
		return !a.IsValid() || b.IsValid() && a.Bits() <= b.Bits() && a.Contains(b.Addr())
	}
	family := uint8(unix.AF_INET)
	if want.from.Addr().Is6() || want.to.Addr().Is6() {
		family = unix.AF_INET6
	}
	for _, r := range rules {
		if (r.link == "" || r.link == want.link) && r.family == family && covers(r.from, want.from) && covers(r.to, want.to) {
			return true
		}
	}
	return false
}

// mainRule is the priority of the rule that has the routes of the host (fib_default_rules_init).
const mainRule = 32766

// dropping are the rules before the routes of the host that drop packets by their link and their
// addresses alone.
func dropping() (all []dropRule, err error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		request := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
		request.AddData(nl.NewIfInfomsg(family))
		messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWRULE)
		if err != nil {
			return nil, err
		}
		for _, b := range messages {
			if r, priority, drops := dropRuleOf(b); drops && priority < mainRule {
				all = append(all, r)
			}
		}
	}
	return all, nil
}

// dropRuleOf reads a rule (struct fib_rule_hdr with its attributes).
func dropRuleOf(b []byte) (r dropRule, priority uint32, drops bool) {
	const inverted = 2 // FIB_RULE_INVERT
	head := nl.DeserializeRtMsg(b)
	attributes, err := nl.ParseRouteAttr(b[head.Len():])
	if err != nil || head.Flags&inverted != 0 || head.Tos != 0 || head.Type < unix.FR_ACT_BLACKHOLE || head.Type > unix.FR_ACT_PROHIBIT {
		return r, 0, false
	}
	r.family = head.Family
	for _, a := range attributes {
		switch a.Attr.Type {
		case unix.FRA_IIFNAME:
			r.link = unix.ByteSliceToString(a.Value)
		case unix.FRA_SRC:
			r.from = prefixOf(a.Value, int(head.Src_len))
		case unix.FRA_DST:
			r.to = prefixOf(a.Value, int(head.Dst_len))
		case unix.FRA_PRIORITY:
			priority = nl.NativeEndian().Uint32(a.Value)
		case unix.FRA_TABLE, unix.FRA_PROTOCOL, unix.FRA_SUPPRESS_IFGROUP, unix.FRA_SUPPRESS_PREFIXLEN, unix.FRA_PAD:
		default: // it drops some packets alone
			return r, 0, false
		}
	}
	return r, priority, true
}

func prefixOf(addr []byte, bits int) netip.Prefix {
	a, _ := netip.AddrFromSlice(addr)
	return netip.PrefixFrom(a, bits)
}
