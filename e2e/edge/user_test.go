package edge

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
)

// TestEdgeUserSpace: a node whose core has a CPU of its own gives real flows to a function in user
// space, which counts every packet of both directions; its links are gone after the end. The daemons
// have the capabilities of their units, and the one that the function needs.
func TestEdgeUserSpace(t *testing.T) {
	b := kit.NewSpaces(t)
	dir := t.TempDir()
	asked := edgeEchoes(t, b.World)
	one := strings.NewReplacer("cores: 2", "cores: 1", "{function: cost, time: 2us}]", "{function: user, run: counter}]")
	node, lb := filepath.Join(dir, "n0.yaml"), filepath.Join(dir, "edge.yaml")
	kit.Must(t, os.WriteFile(node, []byte(one.Replace(kit.NodeFile(dir, 0))), 0o600))
	kit.Must(t, os.WriteFile(lb, []byte(one.Replace(kit.EdgeFile(dir, 1, -1))), 0o600))
	socket := filepath.Join(dir, "n0.sock")
	daemon := runEdge(t, b.Nodes[0], "nf", node, socket, kit.Setpriv(t, "nf", "CAP_NET_RAW")...)
	runEdge(t, b.Balancer, "edge", lb, filepath.Join(dir, "edge.sock"), kit.Setpriv(t, "edge")...)
	for range 4 {
		converse(t, b.Client, kit.EdgeCost)
		<-asked
	}
	const packets = 4 * 2 * 10
	counters := edgeStatus(t, socket).Counters
	counters["sent on"] = counters["direct"] + counters["pass_to_router"] // until the neighbours are known
	for name, want := range map[string]uint64{"user_given": packets, "user_back": packets, "sent on": packets, "counter_packets_outward": packets / 2, "counter_packets_inward": packets / 2} {
		if counters[name] != want {
			t.Errorf("%s is %d, want %d", name, counters[name], want)
		}
	}
	if links := kit.Inside(t, b.Nodes[0], "ip", "-o", "link"); strings.Count(links, "proffer0u0") < 2 {
		t.Errorf("no links lead to user space:\n%s", links)
	}
	kit.Must(t, daemon.Process.Signal(unix.SIGTERM))
	kit.Must(t, daemon.Wait())
	if links := kit.Inside(t, b.Nodes[0], "ip", "-o", "link"); strings.Contains(links, "proffer") || strings.Contains(links, "xdp") {
		t.Errorf("links or programs stay:\n%s", links)
	}
}
