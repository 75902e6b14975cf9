package edge

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// runEdge runs a daemon in a namespace until the test ends, by another command, and returns when it
// reaches its far ends.
func runEdge(t *testing.T, n *testbed.Node, role, file, socket string, by ...string) *exec.Cmd {
	t.Helper()
	cmd := launchEdge(t, n, role, file, by...)
	kit.Eventually(t, role+" on "+n.Name+" reaches its far ends", func() bool {
		s, err := api.Ask(context.Background(), socket)
		return err == nil && len(s.NoNextHop) == 0
	})
	return cmd
}

// launchEdge begins a daemon as runEdge does. `ip netns exec` hides the BPF file system, so nothing is pinned, and a
// daemon's end is that of its programs.
func launchEdge(t *testing.T, n *testbed.Node, role, file string, by ...string) *exec.Cmd {
	t.Helper()
	log, err := os.Create(file + ".log")
	kit.Must(t, err)
	words := slices.Concat([]string{"netns", "exec", n.Namespace}, by, []string{kit.Proffer, role, "--config", file})
	cmd := exec.Command("ip", words...) // becomes the daemon
	cmd.Stderr = log
	kit.Must(t, testbed.StartChild(cmd, unix.SIGKILL))
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Signal(unix.SIGTERM)
			cmd.Wait()
		}
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s of %s:\n%s", role, n.Name, text)
		}
	})
	return cmd
}

// edgeStatus is that of `proffer status --json`.
func edgeStatus(t *testing.T, socket string) (s api.Status) {
	t.Helper()
	kit.Must(t, json.Unmarshal([]byte(kit.Sh(t, kit.Proffer, "status", "--control", socket, "--json")), &s))
	return s
}

// flowsAt adds up the flows begun at the cores of each node, once they are so many together: the status
// is that of the last tick.
func flowsAt(t *testing.T, socket string, total uint64) (all map[string]uint64) {
	t.Helper()
	kit.Eventually(t, fmt.Sprintf("%d flows are counted", total), func() bool {
		all = map[string]uint64{}
		sum := uint64(0)
		for _, c := range edgeStatus(t, socket).Edge.Cores {
			all[c.Node] += *c.Flows
			sum += *c.Flows
		}
		return sum == total
	})
	return all
}

// TestEdgeDaemons: the daemons of an edge LB and its nodes carry flows by their files alone. Nodes are
// drained, removed and added by a reload; a file with a mistake changes nothing; status has the cores as
// nodes and LB count them; nothing stays after the end.
func TestEdgeDaemons(t *testing.T) {
	b := kit.NewSpaces(t)
	dir := t.TempDir()
	asked := edgeEchoes(t, b.World)
	talk := func(times int) {
		t.Helper()
		for range times {
			for _, service := range []int{kit.EdgeCost, kit.EdgeNAT} {
				converse(t, b.Client, service)
				<-asked
			}
		}
	}
	socket, file := filepath.Join(dir, "edge.sock"), filepath.Join(dir, "edge.yaml")
	for i, n := range b.Nodes {
		at := filepath.Join(dir, n.Name+".yaml")
		ids := "- {function: ids, patterns: [{bytes: trumpet}]}\n      - {function: nat"
		kit.Must(t, os.WriteFile(at, []byte(strings.Replace(kit.NodeFile(dir, i), "- {function: nat", ids, 1)), 0o600))
		runEdge(t, n, "nf", at, filepath.Join(dir, n.Name+".sock"))
	}
	kit.Must(t, os.WriteFile(file, []byte(kit.EdgeFile(dir, 1, 1)), 0o600))
	lb := runEdge(t, b.Balancer, "edge", file, socket)
	reload := func(text string, reloads, refused uint64) {
		t.Helper()
		kit.Must(t, os.WriteFile(file, []byte(text), 0o600))
		kit.Must(t, lb.Process.Signal(unix.SIGHUP))
		kit.Eventually(t, "the file is read again", func() bool {
			s := edgeStatus(t, socket)
			return s.Reloads == reloads && s.Refused == refused && len(s.NoNextHop) == 0
		})
	}
	talk(8)
	begun := flowsAt(t, socket, 16)
	if begun["n0"] < 4 || begun["n1"] < 4 {
		t.Errorf("16 flows began as %v", begun)
	}
	kit.Eventually(t, "nodes and LB count the same packets of each of 4 cores", func() bool {
		cores := edgeStatus(t, socket).Edge.Cores
		return len(cores) == 4 && !slices.ContainsFunc(cores, func(c api.CoreStatus) bool {
			at := edgeStatus(t, filepath.Join(dir, c.Node+".sock")).Edge.Cores[c.Core]
			return at.Packets != c.Packets || c.Packets == 0
		})
	})
	reload(kit.EdgeFile(dir, 0, 1), 1, 0) // drained
	talk(4)
	drained := flowsAt(t, socket, 24)
	if drained["n0"] != begun["n0"] {
		t.Errorf("flows began as %v, and with n0 drained as %v", begun, drained)
	}
	reload(strings.Replace(kit.EdgeFile(dir, 1, 1), "cost: 3us", "cost: 0s", 1), 1, 1)
	reload(kit.EdgeFile(dir, 1, -1), 2, 1) // n1 is gone
	talk(4)
	if now := flowsAt(t, socket, drained["n0"]+8); len(now) != 1 {
		t.Errorf("without n1 flows began as %v, and before as %v", now, drained)
	}
	reload(kit.EdgeFile(dir, 0, 1), 3, 1) // n1 is there again
	talk(2)
	sent := testElephant(t, b, socket)
	if seen := edgeStatus(t, filepath.Join(dir, "n1.sock")).Edge.Patterns; len(seen) != 1 || seen[0].Pattern != "trumpet" || seen[0].Service != kit.EdgeNAT ||
		seen[0].Packets < sent/2 || seen[0].Packets > sent { // full queues on the way lose some
		t.Errorf("of %d packets n1 has seen the patterns %+v", sent, seen)
	}
	if text := kit.Sh(t, kit.Proffer, "status", "--control", socket); !strings.Contains(text, "core  n1/1") || !strings.Contains(text, "balancer model") {
		t.Errorf("status prints\n%s", text)
	}
	kit.Must(t, lb.Process.Signal(unix.SIGTERM))
	kit.Must(t, lb.Wait())
	if links := kit.Inside(t, b.Balancer, "ip", "-o", "link"); strings.Contains(links, "xdp") {
		t.Errorf("programs stay at\n%s", links)
	}
}

// testElephant: a flow with nearly all packets is the first talker of the status, with its place. It returns
// how many packets it sent.
func testElephant(t *testing.T, b *kit.EdgeBed, socket string) (sent uint64) {
	t.Helper()
	var conn net.Conn
	kit.Must(t, b.Client.Do(func() (err error) {
		from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeClient[kit.EdgeNAT], 0))
		conn, err = net.DialUDP("udp4", from, net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeWorld, 9))) // nothing answers there
		return err
	}))
	defer conn.Close()
	client := conn.LocalAddr().String()
	kit.Eventually(t, "the status names the elephant", func() bool {
		for range 500 {
			if _, err := conn.Write([]byte("trumpet")); err == nil { // fails now and then, by the answers of ICMP
				sent++
			}
		}
		talkers := edgeStatus(t, socket).Edge.Talkers
		return len(talkers) > 0 && talkers[0].Client == client && talkers[0].Protocol == "udp" && talkers[0].Node == "n1" &&
			talkers[0].Service == kit.EdgeNAT && talkers[0].Share > 0.8 && talkers[0].PacketsPerSecond > 100
	})
	if text := kit.Sh(t, kit.Proffer, "status", "--control", socket); !strings.Contains(text, "talker") || !strings.Contains(text, client) {
		t.Errorf("status prints\n%s", text)
	}
	return sent
}
