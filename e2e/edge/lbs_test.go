package edge

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// The edge with two LBs: client – router – two LBs – router – world, and three nodes on one link with
// both LBs. Each router spreads flows over the LBs by their ports, so the directions of a flow mostly
// meet different ones. All nodes do source NAT behind a firewall.
const lbsNodes, lbsPorts = 3, 10240 // ports of a core

type edgeLBs struct {
	whole                  *testing.T // until its end daemons run
	dir                    string
	client, world, in, out *testbed.Node // in and out: the routers
	link                   *testbed.Node // a bridge
	lb, node               []*testbed.Node
	edge                   []*exec.Cmd
	weights                []int // of the nodes at the LBs, below 0 without the node
	reloads                []uint64
	nodes                  []*exec.Cmd
}

// newEdgeLBs builds it with its daemons.
func newEdgeLBs(t *testing.T) *edgeLBs {
	t.Helper()
	b := &edgeLBs{whole: t, dir: t.TempDir(), client: kit.NewSpace(t, "c"), world: kit.NewSpace(t, "w"), in: kit.NewSpace(t, "i"), out: kit.NewSpace(t, "o"), link: kit.NewSpace(t, "s")}
	kit.Cable(t, b.client, "in", edgeClient[kit.EdgeNAT].String()+"/24", b.in, "client", "10.2.0.1/24", 1500)
	kit.Cable(t, b.out, "world", "198.18.0.1/24", b.world, "out", edgeWorld.String()+"/24", 1500)
	kit.Inside(t, b.client, "ip", "route", "add", "default", "via", "10.2.0.1")
	kit.Inside(t, b.world, "ip", "route", "add", "default", "via", "198.18.0.1")
	kit.Inside(t, b.link, "ip", "link", "add", "nodes", "mtu", "1570", "type", "bridge")
	kit.Inside(t, b.link, "ip", "link", "set", "nodes", "up")
	for i := range 2 {
		n := kit.NewSpace(t, fmt.Sprintf("l%d", i))
		b.lb = append(b.lb, n)
		kit.Cable(t, b.in, n.Name, fmt.Sprintf("10.3.%d.1/30", i), n, "clients", fmt.Sprintf("10.3.%d.2/30", i), 1500)
		kit.Cable(t, n, "world", fmt.Sprintf("198.19.%d.1/30", i), b.out, n.Name, fmt.Sprintf("198.19.%d.2/30", i), 1500)
		b.plug(t, n, fmt.Sprintf("192.0.2.%d/24", i+1))
		kit.Inside(t, n, "ip", "route", "add", "10.2.0.0/24", "via", fmt.Sprintf("10.3.%d.1", i))
		kit.Inside(t, n, "ip", "route", "add", "default", "via", fmt.Sprintf("198.19.%d.2", i))
	}
	for _, r := range []struct {
		router *testbed.Node
		to, by string
	}{{b.in, "default", "10.3"}, {b.out, kit.EdgePublic.String(), "198.19"}} {
		kit.Inside(t, r.router, "sysctl", "-q", "-w", "net.ipv4.fib_multipath_hash_policy=1")
		last := map[string]int{"10.3": 2, "198.19": 1}[r.by]
		kit.Inside(t, r.router, "ip", "route", "add", r.to, "nexthop", "via", fmt.Sprintf("%s.0.%d", r.by, last), "nexthop", "via", fmt.Sprintf("%s.1.%d", r.by, last))
	}
	for i := range lbsNodes {
		n := kit.NewSpace(t, fmt.Sprintf("n%d", i))
		b.node = append(b.node, n)
		b.plug(t, n, fmt.Sprintf("192.0.2.%d/24", i+11))
		file := b.file(n)
		kit.Must(t, os.WriteFile(file, []byte(b.nodeFile(i)), 0o600))
		b.nodes = append(b.nodes, runEdge(t, n, "nf", file, b.socket(n)))
	}
	b.weights, b.reloads = []int{1, 1, -1}, make([]uint64, 2)
	for i, n := range b.lb {
		kit.Must(t, os.WriteFile(b.file(n), []byte(b.lbFile(i)), 0o600))
		b.edge = append(b.edge, runEdge(t, n, "edge", b.file(n), b.socket(n)))
	}
	return b
}

// plug lays a node's link into the bridge.
func (b *edgeLBs) plug(t *testing.T, n *testbed.Node, addr string) {
	t.Helper()
	kit.Sh(t, "ip", "link", "add", "nodes", "netns", n.Namespace, "mtu", "1570", "type", "veth", "peer", "name", n.Name, "netns", b.link.Namespace, "mtu", "1570")
	kit.Inside(t, n, "ip", "addr", "add", addr, "dev", "nodes")
	kit.Inside(t, b.link, "ip", "link", "set", n.Name, "master", "nodes")
	kit.Inside(t, n, "ip", "link", "set", "nodes", "up")
	kit.Inside(t, b.link, "ip", "link", "set", n.Name, "up")
	kit.Must(t, n.Do(func() error { return testbed.WholeFrames("nodes") }))
	kit.Must(t, b.link.Do(func() error { return testbed.WholeFrames(n.Name) }))
}

func (b *edgeLBs) file(n *testbed.Node) string   { return filepath.Join(b.dir, n.Name+".yaml") }
func (b *edgeLBs) socket(n *testbed.Node) string { return filepath.Join(b.dir, n.Name+".sock") }

func (b *edgeLBs) lbFile(i int) string {
	var nodes strings.Builder
	for j, weight := range b.weights {
		if weight >= 0 {
			fmt.Fprintf(&nodes, "  - {name: n%[1]d, number: %[1]d, address: 192.0.2.%[2]d, link: nodes, cores: %[3]d, weight: %[4]d}\n", j, j+11, kit.EdgeCores, weight)
		}
	}
	return fmt.Sprintf(`name: l%d
control: %s
flow_key: "000102030405060708090a0b0c0d0e0f"
clients: clients
world: world
public: [%s/32]
balancer: wrr
recovery: all
nodes:
%sservices:
  - {number: %d, prefixes: [10.2.0.0/24], cost: 4us}
`, i, b.socket(b.lb[i]), kit.EdgePublic, &nodes, kit.EdgeNAT)
}

func (b *edgeLBs) nodeFile(i int) string {
	return fmt.Sprintf(`name: n%[1]d
control: %[2]s
number: %[1]d
link: nodes
lbs: [192.0.2.1, 192.0.2.2]
cores: %[3]d
clients: [10.2.0.0/24]
chains:
  - service: %[4]d
    functions:
      - {function: firewall, rules: [{action: allow, source: 10.2.0.0/24}]}
      - {function: nat, public4: %[5]s, first_port: %[6]d, ports: %[7]d}
`, i, b.socket(b.node[i]), kit.EdgeCores, kit.EdgeNAT, kit.EdgePublic, 2048+i*kit.EdgeCores*lbsPorts, lbsPorts)
}

// kill ends an LB as the death of its host does: its links are dead, and the routers use the other one.
func (b *edgeLBs) kill(t *testing.T, i int) {
	t.Helper()
	for _, router := range []*testbed.Node{b.in, b.out} {
		kit.Inside(t, router, "ip", "link", "set", b.lb[i].Name, "down")
	}
	kit.Must(t, b.edge[i].Process.Signal(unix.SIGKILL))
	b.edge[i].Wait()
}

// revive starts it again, without a flow.
func (b *edgeLBs) revive(t *testing.T, i int) {
	t.Helper()
	t.Helper()
	b.edge[i] = runEdge(b.whole, b.lb[i], "edge", b.file(b.lb[i]), b.socket(b.lb[i]))
	b.reloads[i] = 0
	for _, router := range []*testbed.Node{b.in, b.out} {
		kit.Inside(t, router, "ip", "link", "set", b.lb[i].Name, "up")
	}
}

// weigh gives the nodes other weights at both LBs.
func (b *edgeLBs) weigh(t *testing.T, weights ...int) {
	t.Helper()
	b.weights = weights
	for i, n := range b.lb {
		kit.Must(t, os.WriteFile(b.file(n), []byte(b.lbFile(i)), 0o600))
		kit.Must(t, b.edge[i].Process.Signal(unix.SIGHUP))
		b.reloads[i]++
		kit.Eventually(t, "the file is read again", func() bool {
			s := edgeStatus(t, b.socket(n))
			return s.Reloads == b.reloads[i] && len(s.NoNextHop) == 0
		})
	}
}

// sum adds up a counter over daemons.
func (b *edgeLBs) sum(t *testing.T, counter string, of []*testbed.Node) (sum uint64) {
	t.Helper()
	for _, n := range of {
		sum += edgeStatus(t, b.socket(n)).Counters[counter]
	}
	return sum
}
