package edge

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/e2e/kit"
)

// TestEdgeReplica: an LB whose cores are full runs the command of its file, which starts a node that is
// listed and down. The node joins by its first answer to a probe, without a reload, and gets flows.
func TestEdgeReplica(t *testing.T) {
	b := kit.NewSpaces(t)
	dir := t.TempDir()
	asked := edgeEchoes(t, b.World)
	path := func(name string) string { return filepath.Join(dir, name) }
	for i, n := range b.Nodes {
		kit.Must(t, os.WriteFile(path(n.Name+".yaml"), []byte(kit.NodeFile(dir, i)), 0o600))
	}
	runEdge(t, b.Nodes[0], "nf", path("n0.yaml"), path("n0.sock"))
	script := fmt.Sprintf("#!/bin/sh\necho \"down: $PROFFER_DOWN, $1\"\nsetsid ip netns exec %s %s node --config %s >%s 2>&1 &\n",
		b.Nodes[1].Namespace, kit.Proffer, path("n1.yaml"), path("n1.log"))
	kit.Must(t, os.WriteFile(path("start"), []byte(script), 0o700))
	text := strings.Replace(kit.EdgeFile(dir, 1, 1), "cost: 3us", "cost: 1s", 1) + fmt.Sprintf("replica: {start: [%s, now]}\n", path("start"))
	kit.Must(t, os.WriteFile(path("edge.yaml"), []byte(text), 0o600))
	launchEdge(t, b.Balancer, "edge", path("edge.yaml"))
	ask := func() (s api.Status) {
		t.Helper()
		kit.Eventually(t, "the LB answers", func() (answers bool) {
			var err error
			s, err = api.Ask(context.Background(), path("edge.sock"))
			return err == nil && len(s.Edge.Cores) == 4 && s.Edge.Replica != nil
		})
		return s
	}
	status := func() *api.EdgeStatus { return ask().Edge }
	state := func(want string, unreached int) func() bool {
		return func() bool {
			s := ask()
			return s.Edge.Cores[2].Node == "n1" && s.Edge.Cores[2].State == want && s.Edge.Cores[0].State == "answers" && len(s.NoNextHop) == unreached
		}
	}
	kit.Eventually(t, "n1, which does not run, is down", state("down", 1))
	if r := status().Replica; r.Starts != 0 {
		t.Fatalf("replica %+v before the cores are full", r)
	}
	t.Cleanup(func() {
		s, err := api.Ask(context.Background(), path("n1.sock"))
		if err != nil {
			return // it never began
		}
		kit.Must(t, unix.Kill(s.PID, unix.SIGTERM))
		kit.Eventually(t, "n1 has ended", func() bool {
			_, err := api.Ask(context.Background(), path("n1.sock"))
			return err != nil
		})
	})
	var conn net.Conn
	kit.Must(t, b.Client.Do(func() (err error) {
		from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeClient[kit.EdgeCost], 0))
		conn, err = net.DialUDP("udp4", from, net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeWorld, 9)))
		return err
	}))
	defer conn.Close()
	kit.Eventually(t, "the command runs and ends", func() bool {
		for range 10 {
			conn.Write([]byte("busy")) // a second of a core each
			time.Sleep(time.Millisecond)
		}
		r := status().Replica
		return r.Starts > 0 && !r.Running
	})
	if r := status().Replica; r.Failures != 0 || status().Wishes == 0 {
		t.Errorf("replica %+v, %d wishes", r, status().Wishes)
	}
	kit.Eventually(t, "n1 answers", state("answers", 0))
	kit.Eventually(t, "n1 gets flows", func() bool {
		converse(t, b.Client, kit.EdgeCost)
		<-asked
		return *status().Cores[2].Flows+*status().Cores[3].Flows > 0
	})
	if text := kit.Sh(t, kit.Proffer, "status", "--control", path("edge.sock")); !strings.Contains(text, "command that starts a node: run ") {
		t.Errorf("status prints\n%s", text)
	}
	log, err := os.ReadFile(path("edge.yaml.log"))
	kit.Must(t, err)
	if !strings.Contains(string(log), `output="down: n1, now"`) {
		t.Errorf("the log does not have the command's output:\n%s", log)
	}
}
