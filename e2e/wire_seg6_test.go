package e2e

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"testing"

	"proffer/config"
	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
	"proffer/policy"
	"proffer/table"
	"proffer/wire"
)

// kernelSRv6 lets a node's own kernel answer SIDs.
func kernelSRv6(t *testing.T, n *testbed.Node, sid netip.Prefix, action ...string) {
	t.Helper()
	for _, path := range []string{"conf/all/seg6_enabled", "conf/eth0/seg6_enabled", "conf/all/forwarding"} {
		setSysctl(t, n, "net/ipv6/"+path, "1")
	}
	args := append([]string{"-6", "route", "add", sid.String(), "encap", "seg6local", "action"}, action...)
	in(t, n, "ip", append(args, "dev", "eth0")...)
}

// TestKernelEnd: a candidate that is nothing but the kernel's SRv6 endpoint
// (RFC 8986 §4.1, End) moves our offers on to the next candidate.
func TestKernelEnd(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 2})
	serve(t, bed)
	farm := start(t, bed, settings(t, "hunt:always"))
	s1, s2 := bed.Servers[0], bed.Servers[1]
	if err := farm.Daemon(s1).Stop(); err != nil {
		t.Fatal(err)
	}
	kernelSRv6(t, s1, s1.Locator, "End")

	// Only flows whose first candidate is s1: as the last one it would have to
	// take the connection, which End cannot.
	const flows = 40
	c := record(t, bed)
	for _, port := range portsTo(t, bed, 0, flows) {
		if got := serverOf(t, bed, port); got != s2.Name {
			t.Errorf("an offer to s1, s2 past the kernel of s1 was served by %q", got)
		}
	}
	settled(t, bed)
	w := recorded{bed, c.stop(t)}
	moved := 0
	for _, f := range w.on(s1, false) {
		if f.tcp.has(wire.SYN) && locator(f.ip.destination) == s2.Locator && function(f.ip.destination) == wire.ConnectForce {
			moved++
		}
	}
	if taken := counter(t, farm, "accept_force", s2); moved < flows || taken < flows {
		t.Errorf("the kernel of s1 moved %d offers on and s2 took %d as the last candidate, want %d", moved, taken, flows)
	}
	judge(t, c.file, flows)
}

// TestKernelDecapsulates: `single` needs no agent. Where there is none, the
// kernel's End.DT6 (RFC 8986 §4.6) takes what the LB sends.
func TestKernelDecapsulates(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 2})
	serve(t, bed)
	farm := start(t, bed, settings(t, "single"))
	const flows = 20
	s1, s2 := bed.Servers[0], bed.Servers[1]
	ports := portsTo(t, bed, 0, 2*flows)
	if err := farm.Daemon(s1).Stop(); err != nil {
		t.Fatal(err)
	}
	kernelSRv6(t, s1, deliverSID(s1), "End.DT6", "table", "local")

	c := record(t, bed)
	for _, port := range ports[:flows] {
		if got := serverOf(t, bed, port); got != s1.Name {
			t.Errorf("a flow of s1 was served by %q", got)
		}
	}
	if n := counter(t, farm, "deliver", s2); n > 0 {
		t.Errorf("the agent of s2 delivered %d packets of flows of s1", n)
	}
	const size = 1_000_000
	body := in(t, bed.Client, "curl", "-sS", "--fail", "--local-port", fmt.Sprint(ports[flows]), fmt.Sprintf("%s/bytes/%d", url, size))
	want, err := io.ReadAll(responder.Bytes(size))
	if err != nil || body != string(want) {
		t.Errorf("through End.DT6 come %d bytes that are not those of /bytes/%d (%v)", len(body), size, err)
	}
	settled(t, bed)
	w := recorded{bed, c.stop(t)}
	if got := len(w.on(s1, true)); got < 5*flows {
		t.Errorf("s1 got %d packets for %d connections", got, flows)
	}
	w.wantPlainClient(t, flows)
}

// deliverSID is the SID at which a node decapsulates.
func deliverSID(n *testbed.Node) netip.Prefix {
	return netip.PrefixFrom(wire.SID{Locator: n.Locator, Function: wire.Deliver}.Addr(), 128)
}

// serverOf returns the server that answers, on a connection from a port.
func serverOf(t *testing.T, bed *testbed.Bed, port uint16) string {
	t.Helper()
	return in(t, bed.Client, "curl", "-sS", "--fail", "--local-port", fmt.Sprint(port),
		"-o", "/dev/null", "-w", "%header{x-proffer-server}", url+"/")
}

// portsTo are n client ports whose flows have the same first candidate.
func portsTo(t *testing.T, bed *testbed.Bed, server, n int) (ports []uint16) {
	t.Helper()
	file := configuration(bed, bed.LBs[0])
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lb, err := config.ParseLB(file, text)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := table.Of(&lb.Services[0], lb.Services[0].Servers)
	if err != nil {
		t.Fatal(err)
	}
	vip := netip.AddrPortFrom(bed.VIP, testbed.Port)
	for port := uint16(10000); len(ports) < n; port++ {
		f := policy.Flow{Client: netip.AddrPortFrom(bed.ClientAddrs[0], port), VIP: vip}
		if int(lists.Lookup(policy.NewDigestKey(lb.CandidateKey).Digest(f))[0]) == server {
			ports = append(ports, port)
		}
	}
	return ports
}
