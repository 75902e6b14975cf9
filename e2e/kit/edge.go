package kit

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"proffer/dataplane/edge"
	"proffer/dataplane/nf"
	"proffer/lab/testbed"
	"proffer/topo"
)

// The edge of these tests: client – LB – world, and two nodes at the LB, which have links to
// client and world of their own, for packets that no function changed. Service 1 costs time and
// looks for bytes, service 2 costs time and has a firewall and source NAT; the client has an address
// in each.
const (
	EdgeCost, EdgeNAT = 1, 2
	EdgeCores         = 2
	EdgePorts         = 8192 // of a core
	EdgeSpacing       = 24576
)

var (
	EdgePublic = netip.MustParseAddr("203.0.113.1")
)

// EdgeBed is the namespaces with the data planes.
type EdgeBed struct {
	Client, Balancer, World *testbed.Node
	Nodes                   []*testbed.Node
	LB                      *edge.LB
	Node                    []*nf.Node
}

// NewSpaces builds the namespaces, with their links and routes.
func NewSpaces(t *testing.T) *EdgeBed {
	t.Helper()
	b := &EdgeBed{}
	b.Client, b.Balancer, b.World = NewSpace(t, "c"), NewSpace(t, "l"), NewSpace(t, "w")
	Cable(t, b.Client, "lb", "10.1.0.2/24", b.Balancer, "clients", "10.1.0.1/24", 1500)
	Cable(t, b.Balancer, "world", "198.18.0.1/24", b.World, "lb", "198.18.0.2/24", 1500)
	Inside(t, b.Client, "ip", "addr", "add", "10.2.0.2/24", "dev", "lb")
	Inside(t, b.Client, "ip", "route", "add", "default", "via", "10.1.0.1")
	Inside(t, b.World, "ip", "route", "add", "default", "via", "198.18.0.1")
	Inside(t, b.Balancer, "ip", "route", "add", "10.2.0.0/24", "via", "10.1.0.2")
	for i := range 2 {
		n := NewSpace(t, fmt.Sprintf("n%d", i))
		b.Nodes = append(b.Nodes, n)
		Cable(t, b.Balancer, n.Name, fmt.Sprintf("192.0.2.%d/30", 4*i+1), n, "lb", fmt.Sprintf("192.0.2.%d/30", 4*i+2), 1570)
		Cable(t, n, "client", fmt.Sprintf("10.9.%d.1/24", i), b.Client, n.Name, fmt.Sprintf("10.9.%d.2/24", i), 1500)
		Cable(t, n, "world", fmt.Sprintf("198.19.%d.1/24", i), b.World, n.Name, fmt.Sprintf("198.19.%d.2/24", i), 1500)
		Inside(t, n, "ip", "route", "add", "10.1.0.0/24", "via", fmt.Sprintf("10.9.%d.2", i))
		Inside(t, n, "ip", "route", "add", "198.18.0.0/24", "via", fmt.Sprintf("198.19.%d.2", i))
	}
	return b
}

// NewSpace makes a namespace that forwards.
func NewSpace(t *testing.T, name string) *testbed.Node {
	t.Helper()
	n := &testbed.Node{Name: name, Namespace: fmt.Sprintf("edge%d-%s", os.Getpid(), name)}
	Sh(t, "ip", "netns", "add", n.Namespace)
	t.Cleanup(func() { Sh(t, "ip", "netns", "del", n.Namespace) })
	for _, setting := range []string{"net.ipv4.conf.all.forwarding=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0"} {
		Inside(t, n, "sysctl", "-q", "-w", setting)
	}
	Inside(t, n, "ip", "link", "set", "lo", "up")
	return n
}

// Cable lays a link between two namespaces.
func Cable(t *testing.T, a *testbed.Node, dev, addr string, z *testbed.Node, far, farAddr string, mtu int) {
	t.Helper()
	Sh(t, "ip", "link", "add", dev, "netns", a.Namespace, "mtu", fmt.Sprint(mtu), "type", "veth", "peer", "name", far, "netns", z.Namespace, "mtu", fmt.Sprint(mtu))
	for _, end := range []struct {
		in        *testbed.Node
		dev, addr string
	}{{a, dev, addr}, {z, far, farAddr}} {
		Inside(t, end.in, "ip", "addr", "add", end.addr, "dev", end.dev)
		Inside(t, end.in, "ip", "link", "set", end.dev, "up")
		Must(t, end.in.Do(func() error { return testbed.WholeFrames(end.dev) }))
	}
}

// Load starts the data planes. Node 0 gives each core a CPU; at node 1 the cores share.
func (b *EdgeBed) Load(t *testing.T) {
	t.Helper()
	clients := map[int]netip.Prefix{EdgeCost: netip.MustParsePrefix("10.1.0.0/24"), EdgeNAT: netip.MustParsePrefix("10.2.0.0/24")}
	cfg := &topo.EdgeLB{
		Clients: "clients", World: "world", Public: []netip.Prefix{netip.PrefixFrom(EdgePublic, 32)},
		Key: topo.Key{1, 2, 3}, Flows: topo.FlowTable{Entries: 4096, Idle: time.Minute},
	}
	for service, prefix := range clients {
		svc := topo.EdgeService{Number: service, Prefixes: []netip.Prefix{prefix}}
		for i := range b.Nodes {
			for core := range EdgeCores {
				svc.Instances = append(svc.Instances, topo.EdgeInstance{Server: i, Core: core, Weight: 1})
			}
		}
		cfg.Services = append(cfg.Services, svc)
	}
	for i, n := range b.Nodes {
		cfg.Nodes = append(cfg.Nodes, topo.EdgeNode{Server: i, Addr: netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 4*i+2)), Link: n.Name, Cores: EdgeCores})
		cost := topo.Cost{Each: 2 * time.Microsecond}
		nat := topo.SourceNAT{Public4: EdgePublic, First: 2048 + i*EdgeSpacing, Ports: EdgePorts}
		firewall := topo.Firewall{Rules: []topo.Rule{{Allow: true, Source: clients[EdgeNAT]}}}
		ids := topo.IDS{Patterns: []topo.Pattern{{Bytes: "no such bytes", Drop: true}}}
		datapath := &topo.Datapath{
			Server: i, Link: "lb", LBs: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 4*i+1))}, Cores: EdgeCores, Spread: i == 0,
			Clients: []netip.Prefix{clients[EdgeCost], clients[EdgeNAT]},
			Chains:  []topo.Chain{{Service: EdgeCost, Functions: []topo.Function{cost, ids}}, {Service: EdgeNAT, Functions: []topo.Function{cost, firewall, nat}}},
			Idle:    time.Minute, Linger: time.Second,
		}
		Must(t, n.Do(func() error {
			plane, err := nf.New(datapath)
			if err != nil {
				return err
			}
			b.Node = append(b.Node, plane)
			t.Cleanup(func() { Must(t, plane.Close()) })
			return errors.Join(plane.SetNextHop(0, LinkAddress(t, b.Balancer, n.Name)), plane.Attach())
		}))
	}
	Must(t, b.Balancer.Do(func() (err error) {
		if b.LB, err = edge.New(cfg); err != nil {
			return err
		}
		t.Cleanup(func() { Must(t, b.LB.Close()) })
		for i, n := range b.Nodes {
			if err := b.LB.SetNextHop(i, LinkAddress(t, n, "lb")); err != nil {
				return err
			}
		}
		return b.LB.Attach()
	}))
}

func LinkAddress(t *testing.T, n *testbed.Node, dev string) (mac topo.MAC) {
	t.Helper()
	Must(t, n.Do(func() error {
		link, err := net.InterfaceByName(dev)
		if err == nil {
			mac = topo.MAC(link.HardwareAddr)
		}
		return err
	}))
	return mac
}

func Sh(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	out, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(arguments, " "), err, out)
	}
	return string(out)
}

func Inside(t *testing.T, n *testbed.Node, command ...string) string {
	t.Helper()
	return Sh(t, "ip", append([]string{"netns", "exec", n.Namespace}, command...)...)
}

func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// counts are the packets of every instance of a service, as its node counts them, server by server
// and core by core; steered are those that the LB sent there.
func (b *EdgeBed) counts(t *testing.T, service int) (counts, steered [2 * EdgeCores]uint64) {
	t.Helper()
	at, err := b.LB.Counts(service)
	Must(t, err)
	for i := range counts {
		n, err := b.Node[i/EdgeCores].Count(i%EdgeCores, service)
		Must(t, err)
		counts[i], steered[i] = n.Packets, at[i].Packets.Total()
	}
	return counts, steered
}

// settled are the counts after the last packets: those that stay as they are for a while.
func (b *EdgeBed) settled(t *testing.T, service int) (counts, steered [2 * EdgeCores]uint64) {
	t.Helper()
	counts, steered = b.counts(t, service)
	for still, until := 0, time.Now().Add(Within); still < 4 && time.Now().Before(until); still++ {
		time.Sleep(10 * time.Millisecond)
		now, sent := b.counts(t, service)
		if now != counts || sent != steered || now != sent {
			still = -1
		}
		counts, steered = now, sent
	}
	return counts, steered
}

// InstanceOf runs a flow and returns its instance: the only one of the service that had packets, of
// which the node counted as many as the LB sent, and at least so many.
func (b *EdgeBed) InstanceOf(t *testing.T, service, least int, run func()) int {
	t.Helper()
	before, _ := b.counts(t, service)
	run()
	after, steered := b.settled(t, service)
	instance := -1
	for i := range after {
		switch n := after[i] - before[i]; {
		case n == 0:
		case instance >= 0:
			t.Errorf("one flow had packets at instances %d and %d", instance, i)
		default:
			if instance = i; n < uint64(least) {
				t.Errorf("%d packets of a flow at instance %d, want %d", n, i, least)
			}
		}
	}
	if after != steered {
		t.Errorf("the nodes counted %v packets, the LB sent %v", after, steered)
	}
	return instance
}

// EdgeFile is the LB's configuration, with the weights of nodes, below 0 without the node.
func EdgeFile(dir string, weights ...int) string {
	var nodes strings.Builder
	for i, weight := range weights {
		if weight >= 0 {
			fmt.Fprintf(&nodes, "  - {name: n%[1]d, number: %[1]d, address: 192.0.2.%[2]d, link: n%[1]d, cores: %[3]d, weight: %[4]d}\n", i, 4*i+2, EdgeCores, weight)
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
`, dir, EdgePublic, &nodes, EdgeCost, EdgeNAT)
}

func NodeFile(dir string, i int) string {
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
`, i, dir, 4*i+1, EdgeCores, EdgeCost, EdgeNAT, EdgePublic, 2048+i*EdgeSpacing, EdgePorts)
}
