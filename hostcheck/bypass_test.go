package hostcheck

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"proffer/topo"
)

// TestBypass: each prefix of an edge LB that this host would route by itself is named, and the command
// beside it mends that; so does one rule for all that comes by a link. A rule that drops some of the
// packets, or comes after the routes, does not. A host that forwards nothing needs none.
func TestBypass(t *testing.T) {
	enter(t)
	run(t, "ip", "link", "add", "inner", "type", "veth", "peer", "name", "outer")
	lb := &topo.EdgeLB{
		Clients: "inner", World: "outer", Public: []netip.Prefix{netip.MustParsePrefix("203.0.113.1/32")},
		Services: []topo.EdgeService{{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8:1::/48")}}},
	}
	missing := func() (commands []string) {
		t.Helper()
		advice, err := Bypass(lb)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range advice {
			_, command, _ := strings.Cut(a, "`")
			commands = append(commands, strings.TrimSuffix(command, "`"))
		}
		return commands
	}
	want := func(label string, commands ...string) {
		t.Helper()
		if got := missing(); !slices.Equal(got, commands) {
			t.Errorf("%s: advice\n%s\nwant\n%s", label, strings.Join(got, "\n"), strings.Join(commands, "\n"))
		}
	}
	run(t, "sysctl", "-q", "-w", "net.ipv4.conf.all.forwarding=0", "net.ipv6.conf.all.forwarding=0")
	want("no forwarding")
	all := []string{
		"ip rule add iif inner from 10.1.0.0/16 blackhole", "ip rule add iif outer to 10.1.0.0/16 blackhole",
		"ip -6 rule add iif inner from 2001:db8:1::/48 blackhole", "ip -6 rule add iif outer to 2001:db8:1::/48 blackhole",
		"ip rule add iif outer to 203.0.113.1/32 blackhole",
	}
	run(t, "sysctl", "-q", "-w", "net.ipv4.conf.all.forwarding=1")
	want("IPv4", all[0], all[1], all[4])
	run(t, "sysctl", "-q", "-w", "net.ipv6.conf.all.forwarding=1")
	want("no rule", all...)
	for _, useless := range []string{
		"iif outer from 10.1.0.0/16 blackhole", "iif inner from 10.1.0.0/17 blackhole", "iif inner from 10.1.0.0/16 to 192.0.2.0/24 blackhole",
		"iif inner from 10.1.0.0/16 ipproto tcp blackhole", "iif inner from 10.1.0.0/16 fwmark 1 blackhole", "iif inner from 10.1.0.0/16 tos 0x10 blackhole",
		"not iif inner from 10.1.0.0/16 blackhole", "iif inner from 10.1.0.0/16 lookup main", "iif inner from 10.1.0.0/16 pref 32800 blackhole",
	} {
		run(t, append([]string{"ip", "rule", "add"}, strings.Fields(useless)...)...)
		want(useless, all...)
	}
	for i, command := range all {
		run(t, strings.Fields(command)...)
		want(command, all[i+1:]...)
	}
	run(t, "ip", "rule", "flush")
	run(t, "ip", "-6", "rule", "flush")
	for _, command := range []string{"ip rule add iif inner prohibit", "ip -6 rule add iif inner unreachable"} {
		run(t, strings.Fields(command)...)
	}
	want("a whole link", all[1], all[3], all[4])
}
