package config

import (
	"fmt"
	"testing"
)

// TestAddressesInFlowLists: an address means the same wherever it stands.
func TestAddressesInFlowLists(t *testing.T) {
	const head = "signal_keys: none\ncandidate_key: 00000000000000000000000000000001\nservices:\n- {vip: 2001:db8::1, port: 80, dispatch: hunt, via: %s, servers: [{name: s1, locator: 5f00:0:2:1::/64}]}\nnode: {locator: 5f00:0:1:1::/64, interface: eth0, domain: %s, name: lb}\n"
	for _, list := range []struct{ written, domain string }{
		{"[5f00::1]", "[5f00::/16]"},
		{"[ 5f00::1 ]", "[ 5f00::/16 ]"},
		{`["5f00::1"]`, `["5f00::/16"]`},
		{"[5f00::1, 2001:db8:0:1::2,5f00:1:2:3:4:5:6:7]", "[5f00::/16, 2001:db8::/32,1:2:3:4:5:6:7:8/128]"},
		{"['5f00::1', 5f00::2]", "[5f00::/16, '5f01::/16']"},
		{"[0:0:1::, 5f00::0]", "[0:0:1::/48, 64:ff9b::/96, 5f00::/16]"},
		{"\n    [\n  5f00::1,\n  5f00::2\n ]", "[\n   5f00::/16\n ]"},
	} {
		text := fmt.Sprintf(head, list.written, list.domain)
		got, err := ParseLB("lb.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s and %s: %v", list.written, list.domain, err)
			continue
		}
		sameLB(t, got)
	}
	text := fmt.Sprintf(head, "[5f00:0:9:1::1, 5f00:0:9:2::1, ::9]", "[5f00:0:1::/48, 5f00:0:2::/47]")
	got, err := ParseLB("lb.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := struct{ via, domain string }{"[5f00:0:9:1::1 5f00:0:9:2::1 ::9]", "[5f00:0:1::/48 5f00:0:2::/47]"}
	if via, domain := fmt.Sprint(got.Services[0].Via), fmt.Sprint(got.Domain); via != want.via || domain != want.domain {
		t.Errorf("got %s and %s, want %v", via, domain, want)
	}
}
