package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"proffer/dataplane"
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
	edgeCost, edgeNAT = 1, 2
	edgeCores         = 2
	edgePorts         = 8192 // of a core
	edgeSpacing       = 24576
)

var (
	edgeWorld  = netip.MustParseAddr("198.18.0.2")
	edgePublic = netip.MustParseAddr("203.0.113.1")
	edgeClient = map[int]netip.Addr{edgeCost: netip.MustParseAddr("10.1.0.2"), edgeNAT: netip.MustParseAddr("10.2.0.2")}
)

// edgeBed is the namespaces with the data planes.
type edgeBed struct {
	client, lb, world *testbed.Node
	node              []*testbed.Node
	LB                *edge.LB
	Node              []*nf.Node
}

// newEdge builds it with its planes. Everything ends with the test.
func newEdge(t *testing.T) *edgeBed {
	t.Helper()
	b := newSpaces(t)
	b.load(t)
	return b
}

// newSpaces builds the namespaces, with their links and routes.
func newSpaces(t *testing.T) *edgeBed {
	t.Helper()
	b := &edgeBed{}
	b.client, b.lb, b.world = newSpace(t, "c"), newSpace(t, "l"), newSpace(t, "w")
	cable(t, b.client, "lb", "10.1.0.2/24", b.lb, "clients", "10.1.0.1/24", 1500)
	cable(t, b.lb, "world", "198.18.0.1/24", b.world, "lb", "198.18.0.2/24", 1500)
	inside(t, b.client, "ip", "addr", "add", "10.2.0.2/24", "dev", "lb")
	inside(t, b.client, "ip", "route", "add", "default", "via", "10.1.0.1")
	inside(t, b.world, "ip", "route", "add", "default", "via", "198.18.0.1")
	inside(t, b.lb, "ip", "route", "add", "10.2.0.0/24", "via", "10.1.0.2")
	for i := range 2 {
		n := newSpace(t, fmt.Sprintf("n%d", i))
		b.node = append(b.node, n)
		cable(t, b.lb, n.Name, fmt.Sprintf("192.0.2.%d/30", 4*i+1), n, "lb", fmt.Sprintf("192.0.2.%d/30", 4*i+2), 1570)
		cable(t, n, "client", fmt.Sprintf("10.9.%d.1/24", i), b.client, n.Name, fmt.Sprintf("10.9.%d.2/24", i), 1500)
		cable(t, n, "world", fmt.Sprintf("198.19.%d.1/24", i), b.world, n.Name, fmt.Sprintf("198.19.%d.2/24", i), 1500)
		inside(t, n, "ip", "route", "add", "10.1.0.0/24", "via", fmt.Sprintf("10.9.%d.2", i))
		inside(t, n, "ip", "route", "add", "198.18.0.0/24", "via", fmt.Sprintf("198.19.%d.2", i))
	}
	return b
}

// newSpace makes a namespace that forwards.
func newSpace(t *testing.T, name string) *testbed.Node {
	t.Helper()
	n := &testbed.Node{Name: name, Namespace: fmt.Sprintf("edge%d-%s", os.Getpid(), name)}
	sh(t, "ip", "netns", "add", n.Namespace)
	t.Cleanup(func() { sh(t, "ip", "netns", "del", n.Namespace) })
	for _, setting := range []string{"net.ipv4.conf.all.forwarding=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0"} {
		inside(t, n, "sysctl", "-q", "-w", setting)
	}
	inside(t, n, "ip", "link", "set", "lo", "up")
	return n
}

// cable lays a link between two namespaces.
func cable(t *testing.T, a *testbed.Node, dev, addr string, z *testbed.Node, far, farAddr string, mtu int) {
	t.Helper()
	sh(t, "ip", "link", "add", dev, "netns", a.Namespace, "mtu", fmt.Sprint(mtu), "type", "veth", "peer", "name", far, "netns", z.Namespace, "mtu", fmt.Sprint(mtu))
	for _, end := range []struct {
		in        *testbed.Node
		dev, addr string
	}{{a, dev, addr}, {z, far, farAddr}} {
		inside(t, end.in, "ip", "addr", "add", end.addr, "dev", end.dev)
		inside(t, end.in, "ip", "link", "set", end.dev, "up")
		must(t, end.in.Do(func() error { return testbed.WholeFrames(end.dev) }))
	}
}

// load starts the data planes. Node 0 gives each core a CPU; at node 1 the cores share.
func (b *edgeBed) load(t *testing.T) {
	t.Helper()
	clients := map[int]netip.Prefix{edgeCost: netip.MustParsePrefix("10.1.0.0/24"), edgeNAT: netip.MustParsePrefix("10.2.0.0/24")}
	cfg := &topo.EdgeLB{
		Clients: "clients", World: "world", Public: []netip.Prefix{netip.PrefixFrom(edgePublic, 32)},
		Key: topo.Key{1, 2, 3}, Flows: topo.FlowTable{Entries: 4096, Idle: time.Minute},
	}
	for service, prefix := range clients {
		svc := topo.EdgeService{Number: service, Prefixes: []netip.Prefix{prefix}}
		for i := range b.node {
			for core := range edgeCores {
				svc.Instances = append(svc.Instances, topo.EdgeInstance{Server: i, Core: core, Weight: 1})
			}
		}
		cfg.Services = append(cfg.Services, svc)
	}
	for i, n := range b.node {
		cfg.Nodes = append(cfg.Nodes, topo.EdgeNode{Server: i, Addr: netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 4*i+2)), Link: n.Name, Cores: edgeCores})
		cost := topo.Cost{Each: 2 * time.Microsecond}
		nat := topo.SourceNAT{Public4: edgePublic, First: 2048 + i*edgeSpacing, Ports: edgePorts}
		firewall := topo.Firewall{Rules: []topo.Rule{{Allow: true, Source: clients[edgeNAT]}}}
		ids := topo.IDS{Patterns: []topo.Pattern{{Bytes: "no such bytes", Drop: true}}}
		datapath := &topo.Datapath{
			Server: i, Link: "lb", LBs: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 4*i+1))}, Cores: edgeCores, Spread: i == 0,
			Clients: []netip.Prefix{clients[edgeCost], clients[edgeNAT]},
			Chains:  []topo.Chain{{Service: edgeCost, Functions: []topo.Function{cost, ids}}, {Service: edgeNAT, Functions: []topo.Function{cost, firewall, nat}}},
			Idle:    time.Minute, Linger: time.Second,
		}
		must(t, n.Do(func() error {
			plane, err := nf.New(datapath)
			if err != nil {
				return err
			}
			b.Node = append(b.Node, plane)
			t.Cleanup(func() { must(t, plane.Close()) })
			return errors.Join(plane.SetNextHop(0, linkAddress(t, b.lb, n.Name)), plane.Attach())
		}))
	}
	must(t, b.lb.Do(func() (err error) {
		if b.LB, err = edge.New(cfg); err != nil {
			return err
		}
		t.Cleanup(func() { must(t, b.LB.Close()) })
		for i, n := range b.node {
			if err := b.LB.SetNextHop(i, linkAddress(t, n, "lb")); err != nil {
				return err
			}
		}
		return b.LB.Attach()
	}))
}

func linkAddress(t *testing.T, n *testbed.Node, dev string) (mac topo.MAC) {
	t.Helper()
	must(t, n.Do(func() error {
		link, err := net.InterfaceByName(dev)
		if err == nil {
			mac = topo.MAC(link.HardwareAddr)
		}
		return err
	}))
	return mac
}

func sh(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	out, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(arguments, " "), err, out)
	}
	return string(out)
}

func inside(t *testing.T, n *testbed.Node, command ...string) string {
	t.Helper()
	return sh(t, "ip", append([]string{"netns", "exec", n.Namespace}, command...)...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// counts are the packets of every instance of a service, as its node counts them, server by server
// and core by core; steered are those that the LB sent there.
func (b *edgeBed) counts(t *testing.T, service int) (counts, steered [2 * edgeCores]uint64) {
	t.Helper()
	at, err := b.LB.Counts(service)
	must(t, err)
	for i := range counts {
		n, err := b.Node[i/edgeCores].Count(i%edgeCores, service)
		must(t, err)
		counts[i], steered[i] = n.Packets, at[i].Packets.Total()
	}
	return counts, steered
}

// settled are the counts after the last packets: those that stay as they are for a while.
func (b *edgeBed) settled(t *testing.T, service int) (counts, steered [2 * edgeCores]uint64) {
	t.Helper()
	counts, steered = b.counts(t, service)
	for still, until := 0, time.Now().Add(within); still < 4 && time.Now().Before(until); still++ {
		time.Sleep(10 * time.Millisecond)
		now, sent := b.counts(t, service)
		if now != counts || sent != steered || now != sent {
			still = -1
		}
		counts, steered = now, sent
	}
	return counts, steered
}

// instanceOf runs a flow and returns its instance: the only one of the service that had packets, of
// which the node counted as many as the LB sent, and at least so many.
func (b *edgeBed) instanceOf(t *testing.T, service, least int, run func()) int {
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

// TestEdgeBothDirections: TCP and UDP go through the nodes, with and without NAT, and every packet of
// a flow, in both directions, meets the same core of the same node. NAT's port is of that core.
func TestEdgeBothDirections(t *testing.T) {
	b := newEdge(t)
	served := make(chan netip.AddrPort, 1)
	listener, err := b.world.Listen("tcp", netip.AddrPortFrom(edgeWorld, 80).String())
	must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served <- netip.MustParseAddrPort(r.RemoteAddr)
		w.Write(make([]byte, 100_000))
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	asked := edgeEchoes(t, b.world)
	for _, service := range []int{edgeCost, edgeNAT} {
		met := map[int]int{}
		for range 12 {
			instance := b.instanceOf(t, service, 20, func() {
				size := inside(t, b.client, "curl", "-sS", "--max-time", "60", "--interface", edgeClient[service].String(), "-o", "/dev/null", "-w", "%{size_download}", "http://"+edgeWorld.String()+"/")
				if size != "100000" {
					t.Errorf("curl got %s bytes", size)
				}
			})
			checkSource(t, service, instance, <-served)
			met[instance]++
			instance = b.instanceOf(t, service, 20, func() { converse(t, b.client, service) })
			checkSource(t, service, instance, <-asked)
			met[instance]++
		}
		if len(met) < 3 {
			t.Errorf("24 flows met the instances %v alone", met)
		}
	}
	must(t, clean(b.LB.Counters()))
	for _, n := range b.Node {
		must(t, clean(n.Counters()))
	}
}

// checkSource: the world sees the client's own address, or with NAT the public one and a port of the
// instance's core.
func checkSource(t *testing.T, service, instance int, from netip.AddrPort) {
	t.Helper()
	want := edgeClient[service]
	if service == edgeNAT {
		want = edgePublic
		low := 2048 + instance/edgeCores*edgeSpacing + instance%edgeCores*edgePorts
		if port := int(from.Port()); port < low || port >= low+edgePorts {
			t.Errorf("instance %d gave port %d", instance, port)
		}
	}
	if from.Addr().Unmap() != want {
		t.Errorf("the world sees %v, want %v", from, want)
	}
}

// converse sends ten datagrams on one socket and waits for the answer to each.
func converse(t *testing.T, client *testbed.Node, service int) {
	t.Helper()
	var conn net.Conn
	must(t, client.Do(func() (err error) {
		from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeClient[service], 0))
		conn, err = net.DialUDP("udp4", from, net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeWorld, 7)))
		return err
	}))
	defer conn.Close()
	answer := make([]byte, 100)
	for i := range 10 {
		question := fmt.Sprint("question ", i)
		_, err := io.WriteString(conn, question)
		must(t, err)
		must(t, conn.SetReadDeadline(time.Now().Add(within)))
		n, err := conn.Read(answer)
		must(t, err)
		if string(answer[:n]) != question {
			t.Errorf("the answer to %q is %q", question, answer[:n])
		}
	}
}

// edgeEchoes answers datagrams in the world, and reports the sender of the first of each ten.
func edgeEchoes(t *testing.T, world *testbed.Node) <-chan netip.AddrPort {
	t.Helper()
	var conn *net.UDPConn
	must(t, world.Do(func() (err error) {
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeWorld, 7)))
		return err
	}))
	t.Cleanup(func() { conn.Close() })
	asked := make(chan netip.AddrPort, 1)
	go func() {
		b := make([]byte, 100)
		for i := 0; ; i++ {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if i%10 == 0 {
				asked <- from
			}
			conn.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	return asked
}

// clean: no packet was dropped.
func clean(all []dataplane.Counter, err error) error {
	for _, c := range all {
		if strings.HasPrefix(c.Name, "drop_") && c.Value > 0 {
			err = errors.Join(err, fmt.Errorf("%d packets are %s", c.Value, c.Name))
		}
	}
	return err
}
