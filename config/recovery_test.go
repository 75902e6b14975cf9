package config

import (
	"fmt"
	"strings"
	"testing"

	"proffer/topo"
)

// TestRecoveryDefault: where every server has an agent, the agents are asked for TCP's flows.
func TestRecoveryDefault(t *testing.T) {
	const agent, plain = `{name: a, locator: "5f00:0:2:1::/64"}`, `{name: b, delivery: dt6, locator: "5f00:0:2:2::/64"}`
	many := make([]string, topo.MaxMembers+1)
	for i := range many {
		many[i] = fmt.Sprintf(`{name: s%d, locator: "5f00:0:3:%x::/64"}`, i, i)
	}
	for _, c := range []struct {
		more, servers string
		want          topo.Recovery
	}{
		{"dispatch: single", agent, topo.AgentsRecovery},
		{"dispatch: learned", agent, topo.AgentsRecovery},
		{"dispatch: rr, recovery: history", agent, topo.HistoryRecovery},
		{"dispatch: lsq", agent + ", " + plain, topo.HistoryRecovery},
		{"dispatch: sed, protocol: udp", agent, topo.HistoryRecovery},
		{"dispatch: learned", "", topo.HistoryRecovery},
		{"dispatch: learned", strings.Join(many[1:], ", "), topo.AgentsRecovery},
		{"dispatch: learned", strings.Join(many, ", "), topo.HistoryRecovery},
		{"dispatch: hunt", agent, topo.HistoryRecovery}, // asks in any case
	} {
		text := "node: {locator: \"5f00:0:1:1::/64\", interface: eth0, domain: any}\nsignal_keys: none\n" +
			"candidate_key: \"000102030405060708090a0b0c0d0e0f\"\n" +
			"services: [{vip: \"2001:db8:f::1\", port: 80, " + c.more + ", servers: [" + c.servers + "]}]\n"
		cfg, err := ParseLB("lb.yaml", []byte(text))
		if err != nil || cfg.Services[0].Recovery != c.want {
			t.Errorf("%s with %.80s: %+v, %v; want recovery: %s", c.more, c.servers, cfg, err, c.want)
		}
	}
}
