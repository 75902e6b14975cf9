package edge

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestEdgeLinks: the links of an edge LB and its nodes change while flows begin: address, MTU and name, a second
// address, a node's link that is made again. Each is logged, and flows go on; while a node's link is gone, at the other
// node. A daemon without the link to the world, or to the LBs, ends with an error.
func TestEdgeLinks(t *testing.T) {
	b := kit.NewSpaces(t)
	dir := t.TempDir()
	asked := edgeEchoes(t, b.World)
	talk := func() {
		t.Helper()
		for _, service := range []int{kit.EdgeCost, kit.EdgeNAT, kit.EdgeCost, kit.EdgeNAT} {
			converse(t, b.Client, service)
			<-asked
		}
	}
	socket, file := filepath.Join(dir, "edge.sock"), filepath.Join(dir, "edge.yaml")
	node := map[*testbed.Node]*exec.Cmd{}
	for i, n := range b.Nodes {
		at := filepath.Join(dir, n.Name+".yaml")
		kit.Must(t, os.WriteFile(at, []byte(kit.NodeFile(dir, i)), 0o600))
		node[n] = runEdge(t, n, "nf", at, filepath.Join(dir, n.Name+".sock"))
	}
	kit.Must(t, os.WriteFile(file, []byte(kit.EdgeFile(dir, 1, 1)), 0o600))
	lb := runEdge(t, b.Balancer, "edge", file, socket)
	logged := func(text string) {
		t.Helper()
		kit.Eventually(t, "the log has: "+text, func() bool {
			log, err := os.ReadFile(file + ".log")
			return err == nil && strings.Contains(string(log), text)
		})
	}
	ready := func(cores int) {
		t.Helper()
		kit.Eventually(t, "the nodes' cores answer, and the others get nothing", func() bool {
			status := kit.Sh(t, kit.Proffer, "status", "--control", socket)
			return strings.Count(status, "answers") == cores && strings.Count(status, "weight 0.000") == 2*kit.EdgeCores-cores
		})
	}
	ready(2 * kit.EdgeCores)
	talk()
	kit.Inside(t, b.Balancer, "ip", "link", "set", "n1", "mtu", "1600")
	logged("n1: MTU 1570 is now 1600")
	kit.Inside(t, b.Balancer, "ip", "link", "set", "world", "address", "02:00:00:00:77:01")
	logged("is now 02:00:00:00:77:01")
	kit.Inside(t, b.World, "ip", "neigh", "flush", "all")
	talk()
	kit.Inside(t, b.Balancer, "ip", "addr", "del", "192.0.2.1/30", "dev", "n0")
	kit.Inside(t, b.Balancer, "ip", "addr", "add", "198.18.77.1/24", "dev", "n0")
	ready(kit.EdgeCores)
	kit.Inside(t, b.Balancer, "ip", "addr", "add", "192.0.2.1/30", "dev", "n0")
	logged("address 198.18.77.1 for 192.0.2.2 is now 192.0.2.1")
	ready(2 * kit.EdgeCores)
	talk()
	kit.Sh(t, "ip", "-n", b.Balancer.Namespace, "link", "del", "n0")
	logged("n0: the link is gone")
	ready(kit.EdgeCores)
	talk()
	if end := node[b.Nodes[0]].Wait(); exitOf(end) != 1 {
		t.Errorf("n0 without its link ends with %v", end)
	}
	kit.Cable(t, b.Balancer, "new", "192.0.2.1/30", b.Nodes[0], "lb", "192.0.2.2/30", 1570) // its settings before its programs
	kit.Inside(t, b.Balancer, "ip", "link", "set", "new", "name", "n0")
	logged("n0: the link was made again")
	runEdge(t, b.Nodes[0], "nf", filepath.Join(dir, "n0.yaml"), filepath.Join(dir, "n0.sock"))
	ready(2 * kit.EdgeCores)
	talk()
	kit.Sh(t, "ip", "-n", b.Balancer.Namespace, "link", "del", "world")
	if end := lb.Wait(); exitOf(end) != 1 {
		t.Errorf("the LB without the world ends with %v", end)
	}
	logged("the link is gone: world")
}

func exitOf(end error) int {
	var exit *exec.ExitError
	if errors.As(end, &exit) {
		return exit.ExitCode()
	}
	return 0
}
