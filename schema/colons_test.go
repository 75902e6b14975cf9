package schema

import (
	"strings"
	"testing"
)

// TestColonsThatEndKeys stay: joining is for text alone.
func TestColonsThatEndKeys(t *testing.T) {
	const want = "hosts[0].ports[0]: is a mapping; want a whole number"
	for _, list := range []string{"[a: b]", `["a":b]`, "['a': b]", "[{a: b}]", "[{a: 5f00::1}]"} {
		if err := refused("hosts:\n- {name: a, ports: " + list + "}\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v\nwant %s", list, err, want)
		}
	}
	var hosts []host
	if err := parse("{hosts:[{name: a:1, ports: [7]}, {name:b, ports: [8]}]}", &hosts); err != nil || hosts[0].Name != "a:1" || hosts[1].Name != "b" {
		t.Errorf("%v, %+v", err, hosts)
	}
}
