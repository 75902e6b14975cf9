package hostcheck

import (
	"os"
	"slices"
	"testing"
)

// turn writes a setting.
func turn(t *testing.T, path, value string) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/"+path, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

// TestRouter: forwarding of either family that is off, and a strict source filter, of the link or of all, are named, and
// the command beside it mends each.
func TestRouter(t *testing.T) {
	enter(t)
	run(t, "ip", "link", "add", "eth0.7", "type", "veth", "peer", "name", "port0")
	run(t, "ip", "link", "set", "eth0.7", "up")
	for _, path := range []string{"net/ipv4/conf/all/forwarding", "net/ipv4/conf/eth0.7/forwarding", "net/ipv6/conf/all/forwarding", "net/ipv6/conf/eth0.7/forwarding", "net/ipv4/conf/all/rp_filter", "net/ipv4/conf/eth0.7/rp_filter"} {
		turn(t, path, "0")
	}
	want := []string{
		"this host forwards no IPv4 packets that come by eth0.7: `sysctl -qw net/ipv4/conf/eth0.7/forwarding=1`",
		"this host forwards no IPv6 packets that come by eth0.7: `sysctl -qw net/ipv6/conf/eth0.7/forwarding=1`",
		"this host forwards no IPv6 packets that come by eth0.7: `sysctl -qw net/ipv6/conf/all/forwarding=1`",
	}
	if got := Router("eth0.7", 4, 6); !slices.Equal(got, want) {
		t.Errorf("advice %q, want %q", got, want)
	}
	if got := Router("eth0.7", 4); !slices.Equal(got, want[:1]) {
		t.Errorf("advice about IPv4 %q, want %q", got, want[:1])
	}
	for _, advice := range want {
		mend(t, advice)
	}
	if got := Router("eth0.7", 4, 6); len(got) > 0 {
		t.Errorf("advice %q about a router", got)
	}
	if got := SourceFilter("eth0.7"); len(got) > 0 {
		t.Errorf("advice %q about a link without a filter", got)
	}
	for _, path := range []string{"net/ipv4/conf/all/rp_filter", "net/ipv4/conf/eth0.7/rp_filter"} {
		turn(t, path, "1")
		strict := []string{"eth0.7 takes no packets with a source behind another link (rp_filter): `sysctl -qw net/ipv4/conf/eth0.7/rp_filter=2`"}
		if got := SourceFilter("eth0.7"); !slices.Equal(got, strict) {
			t.Errorf("with %s: advice %q, want %q", path, got, strict)
		}
		mend(t, strict[0])
		if got := SourceFilter("eth0.7"); len(got) > 0 {
			t.Errorf("advice %q about a loose filter", got)
		}
	}
}
