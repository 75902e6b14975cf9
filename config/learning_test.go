package config

import (
	"fmt"
	"strings"
	"testing"

	"proffer/topo"
)

// TestLearningLimits: the data plane has room for so many services that learn, and for so many
// servers of each.
func TestLearningLimits(t *testing.T) {
	file := func(services, servers int, more string) []byte {
		var b strings.Builder
		b.WriteString("node: {locator: 5f00:0:1:1::/64, interface: eth0, domain: any}\nsignal_keys: none\n" +
			"candidate_key: \"00000000000000000000000000000001\"\nservices:\n")
		for i := range services {
			fmt.Fprintf(&b, "  - {vip: 2001:db8:f::1, port: %d, dispatch: learned, servers: [{name: s, locator: 5f00:0:2:1::/64}]}\n", 1000+i)
		}
		b.WriteString("  - vip: 2001:db8:f::2\n    port: 80\n    dispatch: learned:literal\n" + more + "    servers:\n")
		for i := range servers {
			fmt.Fprintf(&b, "      - {name: s%d, locator: \"5f00:0:3:%x::/64\"}\n", i, i)
		}
		return []byte(b.String())
	}
	const agents, udp = "    recovery: agents\n", "    protocol: udp\n"
	for _, c := range []struct {
		services, servers int
		more, want        string
	}{
		{topo.MaxLearned - 1, topo.MaxSeats, "", ""},
		{1, topo.MaxMembers, agents, ""},
		{1, topo.MaxMembers + 1, agents, `services[1].servers: are 241, and dispatch learned:literal with recovery: agents asks at most 240`},
		{1, 1, agents + udp, `services[1].recovery: "agents" goes with protocol: tcp where dispatch is learned:literal`},
		{1, topo.MaxMembers + 1, udp, ""},
		{topo.MaxLearned, 1, "", `services[31].dispatch: "learned:literal" is that of more than 31 services`},
		{0, topo.MaxSeats + 1, "", `services[0].servers: are 1025, and dispatch learned:literal goes with at most 1024`},
	} {
		_, err := ParseLB("lb.yaml", file(c.services, c.servers, c.more))
		if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%d services and one of %d servers%q: %.300v; want %q", c.services, c.servers, c.more, err, c.want)
		}
	}
}
