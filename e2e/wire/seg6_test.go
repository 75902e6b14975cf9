package wire

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"testing"

	"proffer/config"
	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
	"proffer/policy"
	"proffer/table"
	"proffer/wire"
)

// TestKernelEnd: a candidate that is nothing but the kernel's SRv6 endpoint
// (RFC 8986 §4.1, End) moves our offers on to the next candidate.
func TestKernelEnd(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "hunt:always"))
	s1, s2 := bed.Servers[0], bed.Servers[1]
	if err := farm.Daemon(s1).Stop(); err != nil {
		t.Fatal(err)
	}
	kit.KernelSRv6(t, s1, s1.Locator, "End")

	// Only flows whose first candidate is s1: as the last one it would have to
	// take the connection, which End cannot.
	const flows = 40
	c := kit.Record(t, bed)
	for _, port := range portsTo(t, bed, 0, flows) {
		if got := serverOf(t, bed, port); got != s2.Name {
			t.Errorf("an offer to s1, s2 past the kernel of s1 was served by %q", got)
		}
	}
	kit.Settled(t, bed)
	w := kit.Recorded{Bed: bed, Frames: c.Stop(t)}
	moved := 0
	for _, f := range w.On(s1, false) {
		if f.TCP.Has(wire.SYN) && kit.Locator(f.Ip.Destination) == s2.Locator && kit.Function(f.Ip.Destination) == wire.ConnectForce {
			moved++
		}
	}
	if taken := kit.Counter(t, farm, "accept_force", s2); moved < flows || taken < flows {
		t.Errorf("the kernel of s1 moved %d offers on and s2 took %d as the last candidate, want %d", moved, taken, flows)
	}
	kit.Judge(t, c.File, flows)
}

// TestKernelDecapsulates: `single` needs no agent. Where there is none, the
// kernel's End.DT6 (RFC 8986 §4.6) takes what the LB sends.
func TestKernelDecapsulates(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Serve(t, bed)
	farm := kit.Start(t, bed, kit.Settings(t, "single"))
	const flows = 20
	s1, s2 := bed.Servers[0], bed.Servers[1]
	ports := portsTo(t, bed, 0, 2*flows)
	if err := farm.Daemon(s1).Stop(); err != nil {
		t.Fatal(err)
	}
	kit.KernelSRv6(t, s1, kit.DeliverSID(s1), "End.DT6", "table", "local")

	c := kit.Record(t, bed)
	for _, port := range ports[:flows] {
		if got := serverOf(t, bed, port); got != s1.Name {
			t.Errorf("a flow of s1 was served by %q", got)
		}
	}
	if n := kit.Counter(t, farm, "deliver", s2); n > 0 {
		t.Errorf("the agent of s2 delivered %d packets of flows of s1", n)
	}
	const size = 1_000_000
	body := kit.In(t, bed.Client, "curl", "-sS", "--fail", "--local-port", fmt.Sprint(ports[flows]), fmt.Sprintf("%s/bytes/%d", kit.URL, size))
	want, err := io.ReadAll(responder.Bytes(size))
	if err != nil || body != string(want) {
		t.Errorf("through End.DT6 come %d bytes that are not those of /bytes/%d (%v)", len(body), size, err)
	}
	kit.Settled(t, bed)
	w := kit.Recorded{Bed: bed, Frames: c.Stop(t)}
	if got := len(w.On(s1, true)); got < 5*flows {
		t.Errorf("s1 got %d packets for %d connections", got, flows)
	}
	w.WantPlainClient(t, flows)
}

// serverOf returns the server that answers, on a connection from a port.
func serverOf(t *testing.T, bed *testbed.Bed, port uint16) string {
	t.Helper()
	return kit.In(t, bed.Client, "curl", "-sS", "--fail", "--local-port", fmt.Sprint(port),
		"-o", "/dev/null", "-w", "%header{x-proffer-server}", kit.URL+"/")
}

// portsTo are n client ports whose flows have the same first candidate.
func portsTo(t *testing.T, bed *testbed.Bed, server, n int) (ports []uint16) {
	t.Helper()
	file := kit.Configuration(bed, bed.LBs[0])
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
