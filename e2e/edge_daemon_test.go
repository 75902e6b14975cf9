package e2e

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
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/lab/testbed"
)

// edgeFile is the LB's configuration, with the weights of nodes, below 0 without the node.
func edgeFile(dir string, weights ...int) string {
	var nodes strings.Builder
	for i, weight := range weights {
		if weight >= 0 {
			fmt.Fprintf(&nodes, "  - {name: n%[1]d, number: %[1]d, address: 192.0.2.%[2]d, link: n%[1]d, cores: %[3]d, weight: %[4]d}\n", i, 4*i+2, edgeCores, weight)
		}
	}
	return fmt.Sprintf(`control: %s/edge.sock
flow_key: "000102030405060708090a0b0c0d0e0f"
report_key: "0f0e0d0c0b0a09080706050403020100"
clients: clients
world: world
public: [%s/32]
nodes:
%sservices:
  - {number: %d, prefixes: [10.1.0.0/24], cost: 3us}
  - {number: %d, prefixes: [10.2.0.0/24]}
`, dir, edgePublic, &nodes, edgeCost, edgeNAT)
}

func nodeFile(dir string, i int) string {
	return fmt.Sprintf(`name: n%[1]d
control: %[2]s/n%[1]d.sock
number: %[1]d
link: lb
lbs: [192.0.2.%[3]d]
cores: %[4]d
cpus: own
report_key: "0f0e0d0c0b0a09080706050403020100"
clients: [10.1.0.0/24, 10.2.0.0/24]
chains:
  - service: %[5]d
    functions: [{function: cost, time: 2us}]
  - service: %[6]d
    functions:
      - {function: cost, time: 2us}
      - {function: firewall, rules: [{action: allow, source: 10.2.0.0/24}]}
      - {function: nat, public4: %[7]s, first_port: %[8]d, ports: %[9]d}
`, i, dir, 4*i+1, edgeCores, edgeCost, edgeNAT, edgePublic, 2048+i*edgeSpacing, edgePorts)
}

// runEdge runs a daemon in a namespace until the test ends, by another command, and returns when it
// reaches its far ends.
func runEdge(t *testing.T, n *testbed.Node, role, file, socket string, by ...string) *exec.Cmd {
	t.Helper()
	cmd := launchEdge(t, n, role, file, by...)
	eventually(t, role+" on "+n.Name+" reaches its far ends", func() bool {
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
	must(t, err)
	words := slices.Concat([]string{"netns", "exec", n.Namespace}, by, []string{proffer, role, "--config", file})
	cmd := exec.Command("ip", words...) // becomes the daemon
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	must(t, cmd.Start())
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
	must(t, json.Unmarshal([]byte(sh(t, proffer, "status", "--control", socket, "--json")), &s))
	return s
}

// flowsAt adds up the flows begun at the cores of each node, once they are so many together: the status
// is that of the last tick.
func flowsAt(t *testing.T, socket string, total uint64) (all map[string]uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d flows are counted", total), func() bool {
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
	b := newSpaces(t)
	dir := t.TempDir()
	asked := edgeEchoes(t, b.world)
	talk := func(times int) {
		t.Helper()
		for range times {
			for _, service := range []int{edgeCost, edgeNAT} {
				converse(t, b.client, service)
				<-asked
			}
		}
	}
	socket, file := filepath.Join(dir, "edge.sock"), filepath.Join(dir, "edge.yaml")
	for i, n := range b.node {
		at := filepath.Join(dir, n.Name+".yaml")
		ids := "- {function: ids, patterns: [{bytes: trumpet}]}\n      - {function: nat"
		must(t, os.WriteFile(at, []byte(strings.Replace(nodeFile(dir, i), "- {function: nat", ids, 1)), 0o600))
		runEdge(t, n, "nf", at, filepath.Join(dir, n.Name+".sock"))
	}
	must(t, os.WriteFile(file, []byte(edgeFile(dir, 1, 1)), 0o600))
	lb := runEdge(t, b.lb, "edge", file, socket)
	reload := func(text string, reloads, refused uint64) {
		t.Helper()
		must(t, os.WriteFile(file, []byte(text), 0o600))
		must(t, lb.Process.Signal(unix.SIGHUP))
		eventually(t, "the file is read again", func() bool {
			s := edgeStatus(t, socket)
			return s.Reloads == reloads && s.Refused == refused && len(s.NoNextHop) == 0
		})
	}
	talk(8)
	begun := flowsAt(t, socket, 16)
	if begun["n0"] < 4 || begun["n1"] < 4 {
		t.Errorf("16 flows began as %v", begun)
	}
	eventually(t, "nodes and LB count the same packets of each of 4 cores", func() bool {
		cores := edgeStatus(t, socket).Edge.Cores
		return len(cores) == 4 && !slices.ContainsFunc(cores, func(c api.CoreStatus) bool {
			at := edgeStatus(t, filepath.Join(dir, c.Node+".sock")).Edge.Cores[c.Core]
			return at.Packets != c.Packets || c.Packets == 0
		})
	})
	reload(edgeFile(dir, 0, 1), 1, 0) // drained
	talk(4)
	drained := flowsAt(t, socket, 24)
	if drained["n0"] != begun["n0"] {
		t.Errorf("flows began as %v, and with n0 drained as %v", begun, drained)
	}
	reload(strings.Replace(edgeFile(dir, 1, 1), "cost: 3us", "cost: 0s", 1), 1, 1)
	reload(edgeFile(dir, 1, -1), 2, 1) // n1 is gone
	talk(4)
	if now := flowsAt(t, socket, drained["n0"]+8); len(now) != 1 {
		t.Errorf("without n1 flows began as %v, and before as %v", now, drained)
	}
	reload(edgeFile(dir, 0, 1), 3, 1) // n1 is there again
	talk(2)
	sent := testElephant(t, b, socket)
	if seen := edgeStatus(t, filepath.Join(dir, "n1.sock")).Edge.Patterns; len(seen) != 1 || seen[0].Pattern != "trumpet" || seen[0].Service != edgeNAT ||
		seen[0].Packets < sent/2 || seen[0].Packets > sent { // full queues on the way lose some
		t.Errorf("of %d packets n1 has seen the patterns %+v", sent, seen)
	}
	if text := sh(t, proffer, "status", "--control", socket); !strings.Contains(text, "core  n1/1") || !strings.Contains(text, "balancer model") {
		t.Errorf("status prints\n%s", text)
	}
	must(t, lb.Process.Signal(unix.SIGTERM))
	must(t, lb.Wait())
	if links := inside(t, b.lb, "ip", "-o", "link"); strings.Contains(links, "xdp") {
		t.Errorf("programs stay at\n%s", links)
	}
}

// testElephant: a flow with nearly all packets is the first talker of the status, with its place. It returns
// how many packets it sent.
func testElephant(t *testing.T, b *edgeBed, socket string) (sent uint64) {
	t.Helper()
	var conn net.Conn
	must(t, b.client.Do(func() (err error) {
		from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeClient[edgeNAT], 0))
		conn, err = net.DialUDP("udp4", from, net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeWorld, 9))) // nothing answers there
		return err
	}))
	defer conn.Close()
	client := conn.LocalAddr().String()
	eventually(t, "the status names the elephant", func() bool {
		for range 500 {
			if _, err := conn.Write([]byte("trumpet")); err == nil { // fails now and then, by the answers of ICMP
				sent++
			}
		}
		talkers := edgeStatus(t, socket).Edge.Talkers
		return len(talkers) > 0 && talkers[0].Client == client && talkers[0].Protocol == "udp" && talkers[0].Node == "n1" &&
			talkers[0].Service == edgeNAT && talkers[0].Share > 0.8 && talkers[0].PacketsPerSecond > 100
	})
	if text := sh(t, proffer, "status", "--control", socket); !strings.Contains(text, "talker") || !strings.Contains(text, client) {
		t.Errorf("status prints\n%s", text)
	}
	return sent
}
