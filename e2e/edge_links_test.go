package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"proffer/lab/testbed"
)

// TestEdgeLinks: the links of an edge LB and its nodes change while flows begin: address, MTU and name, a second
// address, a node's link that is made again. Each is logged, and flows go on; while a node's link is gone, at the other
// node. A daemon without the link to the world, or to the LBs, ends with an error.
func TestEdgeLinks(t *testing.T) {
	b := newSpaces(t)
	dir := t.TempDir()
	asked := edgeEchoes(t, b.world)
	talk := func() {
		t.Helper()
		for _, service := range []int{edgeCost, edgeNAT, edgeCost, edgeNAT} {
			converse(t, b.client, service)
			<-asked
		}
	}
	socket, file := filepath.Join(dir, "edge.sock"), filepath.Join(dir, "edge.yaml")
	node := map[*testbed.Node]*exec.Cmd{}
	for i, n := range b.node {
		at := filepath.Join(dir, n.Name+".yaml")
		must(t, os.WriteFile(at, []byte(nodeFile(dir, i)), 0o600))
		node[n] = runEdge(t, n, "nf", at, filepath.Join(dir, n.Name+".sock"))
	}
	must(t, os.WriteFile(file, []byte(edgeFile(dir, 1, 1)), 0o600))
	lb := runEdge(t, b.lb, "edge", file, socket)
	logged := func(text string) {
		t.Helper()
		eventually(t, "the log has: "+text, func() bool {
			log, err := os.ReadFile(file + ".log")
			return err == nil && strings.Contains(string(log), text)
		})
	}
	ready := func(cores int) {
		t.Helper()
		eventually(t, "the nodes' cores answer, and the others get nothing", func() bool {
			status := sh(t, proffer, "status", "--control", socket)
			return strings.Count(status, "answers") == cores && strings.Count(status, "weight 0.000") == 2*edgeCores-cores
		})
	}
	ready(2 * edgeCores)
	talk()
	inside(t, b.lb, "ip", "link", "set", "n1", "mtu", "1600")
	logged("n1: MTU 1570 is now 1600")
	inside(t, b.lb, "ip", "link", "set", "world", "address", "02:00:00:00:77:01")
	logged("is now 02:00:00:00:77:01")
	inside(t, b.world, "ip", "neigh", "flush", "all")
	talk()
	inside(t, b.lb, "ip", "addr", "del", "192.0.2.1/30", "dev", "n0")
	inside(t, b.lb, "ip", "addr", "add", "198.18.77.1/24", "dev", "n0")
	ready(edgeCores)
	inside(t, b.lb, "ip", "addr", "add", "192.0.2.1/30", "dev", "n0")
	logged("address 198.18.77.1 for 192.0.2.2 is now 192.0.2.1")
	ready(2 * edgeCores)
	talk()
	sh(t, "ip", "-n", b.lb.Namespace, "link", "del", "n0")
	logged("n0: the link is gone")
	ready(edgeCores)
	talk()
	if end := node[b.node[0]].Wait(); exitOf(end) != 1 {
		t.Errorf("n0 without its link ends with %v", end)
	}
	cable(t, b.lb, "new", "192.0.2.1/30", b.node[0], "lb", "192.0.2.2/30", 1570) // its settings before its programs
	inside(t, b.lb, "ip", "link", "set", "new", "name", "n0")
	logged("n0: the link was made again")
	runEdge(t, b.node[0], "nf", filepath.Join(dir, "n0.yaml"), filepath.Join(dir, "n0.sock"))
	ready(2 * edgeCores)
	talk()
	sh(t, "ip", "-n", b.lb.Namespace, "link", "del", "world")
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
