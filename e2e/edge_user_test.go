package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEdgeUserSpace: a node whose core has a CPU of its own gives real flows to a function in user
// space, which counts every packet of both directions; its links are gone after the end. The daemons
// have the capabilities of their units, and the one that the function needs.
func TestEdgeUserSpace(t *testing.T) {
	b := newSpaces(t)
	dir := t.TempDir()
	asked := edgeEchoes(t, b.world)
	one := strings.NewReplacer("cores: 2", "cores: 1", "{function: cost, time: 2us}]", "{function: user, run: counter}]")
	node, lb := filepath.Join(dir, "n0.yaml"), filepath.Join(dir, "edge.yaml")
	must(t, os.WriteFile(node, []byte(one.Replace(nodeFile(dir, 0))), 0o600))
	must(t, os.WriteFile(lb, []byte(one.Replace(edgeFile(dir, 1, -1))), 0o600))
	socket := filepath.Join(dir, "n0.sock")
	daemon := runEdge(t, b.node[0], "nf", node, socket, setpriv(t, "nf", "CAP_NET_RAW")...)
	runEdge(t, b.lb, "edge", lb, filepath.Join(dir, "edge.sock"), setpriv(t, "edge")...)
	for range 4 {
		converse(t, b.client, edgeCost)
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
	if links := inside(t, b.node[0], "ip", "-o", "link"); strings.Count(links, "proffer0u0") < 2 {
		t.Errorf("no links lead to user space:\n%s", links)
	}
	must(t, daemon.Process.Signal(unix.SIGTERM))
	must(t, daemon.Wait())
	if links := inside(t, b.node[0], "ip", "-o", "link"); strings.Contains(links, "proffer") || strings.Contains(links, "xdp") {
		t.Errorf("links or programs stay:\n%s", links)
	}
}
