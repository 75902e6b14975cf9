package edge

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"proffer/e2e/kit"
)

// TestEdgeNodesDiffer: a node with fewer cores than the LB's file has, and one without the chain of a
// service, get no flows there, so none is lost; status and log name both, and a node that measures no
// loads under `balancer: monitor`, the log once.
func TestEdgeNodesDiffer(t *testing.T) {
	b := kit.NewSpaces(t)
	dir := t.TempDir()
	asked := edgeEchoes(t, b.World)
	socket, file := filepath.Join(dir, "edge.sock"), filepath.Join(dir, "edge.yaml")
	for i, n := range b.Nodes {
		text := strings.Replace(kit.NodeFile(dir, i), "cores: 2", "cores: 1", 1)
		if i == 1 {
			text, _, _ = strings.Cut(strings.Replace(kit.NodeFile(dir, i), "cpus: own", "cpus: shared", 1), "  - service: 2")
		}
		at := filepath.Join(dir, n.Name+".yaml")
		kit.Must(t, os.WriteFile(at, []byte(text), 0o600))
		runEdge(t, n, "nf", at, filepath.Join(dir, n.Name+".sock"))
	}
	kit.Must(t, os.WriteFile(file, []byte("balancer: monitor\n"+kit.EdgeFile(dir, 1, 1)), 0o600))
	runEdge(t, b.Balancer, "edge", file, socket)
	want := []string{
		"node n0 reports cores: 1, and this file has cores: 2: a core that is not in both gets no flows",
		"node n1 has no chain of service 2, or drains: it gets no new flows of it",
		"node n1 measures no loads of its cores: balancer monitor levels them by predictions",
	}
	kit.Eventually(t, "the differences are known", func() bool { return slices.Equal(edgeStatus(t, socket).Problems, want) })
	for range 8 {
		for _, service := range []int{kit.EdgeCost, kit.EdgeNAT} {
			converse(t, b.Client, service)
			<-asked
		}
	}
	for _, n := range b.Nodes {
		if drops := edgeStatus(t, filepath.Join(dir, n.Name+".sock")).Counters["drop_impossible_id"]; drops != 0 {
			t.Errorf("%s dropped %d packets of cores or services that it has not", n.Name, drops)
		}
	}
	text, log := kit.Sh(t, kit.Proffer, "status", "--control", socket), kit.Read(t, file+".log")
	for _, problem := range want {
		if !strings.Contains(text, "problem: "+problem) || strings.Count(log, problem) != 1 {
			t.Errorf("%q is not in the status, or not once in the log:\n%s\n%s", problem, text, log)
		}
	}
	if !strings.Contains(text, "absent") {
		t.Errorf("no core is absent:\n%s", text)
	}
}
