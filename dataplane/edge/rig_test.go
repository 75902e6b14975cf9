package edge_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/dataplane/edge"
	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// The edge of the tests: a client network and the world, two nodes of two and of one core, and
// service 5 for the client network. Function addresses of NAT are public.
var (
	client4, client6 = netip.MustParseAddr("10.1.0.7"), netip.MustParseAddr("2001:db8:1::7")
	remote4, remote6 = netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("2001:db8:9::9")
	public, public6  = netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8:ffff::1")
	nodeAddr         = []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("fd00:9::2")}
	lbAddr           = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00:9::1")}
	gateway          = netip.MustParseAddr("198.18.0.2")
	gatewayMAC       = topo.MAC{2, 0, 0, 0, 0, 0x99}
	key              = topo.Key{9, 8, 7, 6, 5, 4, 3, 2, 1}
)

const (
	service   = 5
	redirect  = 4 // XDP_REDIRECT
	idle      = 10 * time.Second
	nodesLink = "nodes"
)

// bench is a loaded LB in a namespace of its own.
type bench struct {
	*edge.LB
	now   time.Duration
	clock *ebpf.Map
	macs  map[string]topo.MAC
	seen  rig.Hits

	attached func() // tells that links run the programs
}

// Attach is the LB's. Programs on a link serve no later test.
func (b *bench) Attach() error {
	b.attached()
	return b.LB.Attach()
}

// edgeSpec is the programs as they ship, read once.
var edgeSpec = sync.OnceValues(objects.LoadEdge)

func config() *topo.EdgeLB {
	return &topo.EdgeLB{
		Clients: "clients", World: "world",
		Nodes: []topo.EdgeNode{
			{Server: 1, Addr: nodeAddr[0], Link: nodesLink, Cores: 2},
			{Server: 200, Addr: nodeAddr[1], Link: nodesLink, Cores: 1},
		},
		Services: []topo.EdgeService{{
			Number:    service,
			Prefixes:  []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8:1::/48")},
			Instances: []topo.EdgeInstance{{Server: 1, Core: 0, Weight: 1}, {Server: 1, Core: 1, Weight: 1}, {Server: 200, Core: 0, Weight: 1}},
		}},
		Public: []netip.Prefix{netip.PrefixFrom(public, 32), netip.PrefixFrom(public6, 128)},
		Key:    key,
		Flows:  topo.FlowTable{Entries: 1024, Idle: idle},
	}
}

// enter moves the test into a namespace with the edge's links and routes.
func enter(t *testing.T) map[string]topo.MAC {
	t.Helper()
	rig.NeedRoot(t)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", path), []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	macs := map[string]topo.MAC{}
	for i, name := range []string{"clients", "world", nodesLink} {
		mac := topo.MAC{2, 0, 0, 0, 1, byte(i)}
		macs[name] = mac
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1600, HardwareAddr: mac[:]}, PeerName: name + "-far"}
		if err := netlink.LinkAdd(link); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"lo", "clients", "clients-far", "world", "world-far", nodesLink, nodesLink + "-far"} {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	address(t, "world", "198.18.0.1/24")
	address(t, nodesLink, lbAddr[0].String()+"/24")
	address(t, nodesLink, lbAddr[1].String()+"/64")
	world, _ := netlink.LinkByName("world")
	must(t, netlink.NeighAdd(&netlink.Neigh{LinkIndex: world.Attrs().Index, IP: gateway.AsSlice(), HardwareAddr: gatewayMAC[:], State: netlink.NUD_PERMANENT}))
	must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: world.Attrs().Index, Gw: gateway.AsSlice(), Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}}))
	return macs
}

func address(t *testing.T, link, addr string) {
	t.Helper()
	l, err := netlink.LinkByName(link)
	must(t, err)
	a, err := netlink.ParseAddr(addr)
	must(t, err)
	a.Flags = unix.IFA_F_NODAD
	must(t, netlink.AddrAdd(l, a))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newBench loads an LB with both nodes ready.
func newBench(t *testing.T, seen rig.Hits, change ...func(*topo.EdgeLB)) *bench {
	t.Helper()
	cfg := config()
	for _, c := range change {
		c(cfg)
	}
	return load(t, &bench{macs: enter(t), seen: seen}, cfg, "virtual_time")
}

// load loads an LB in the namespace of the links, with these switches of the programs on.
func load(t *testing.T, b *bench, cfg *topo.EdgeLB, switches ...string) *bench {
	t.Helper()
	var err error
	programs, attached := rig.Again(t, edgeSpec, cfg.Pin, func(spec *ebpf.CollectionSpec) (err error) {
		for _, name := range switches {
			err = errors.Join(err, spec.Variables[name].Set(true))
		}
		return err
	})
	b.LB, err = edge.NewOf(cfg, programs)
	must(t, err)
	b.attached = attached
	t.Cleanup(func() { must(t, b.Close()) })
	for _, n := range cfg.Nodes {
		must(t, b.SetNextHop(n.Server, nodeMAC(n.Server)))
	}
	b.clock = rig.SectionOf(t, b.Objects().EdgeClients, ".bss")
	b.at(t, rig.Start)
	return b
}

func nodeMAC(server int) topo.MAC { return topo.MAC{2, 0, 0, 0, 2, byte(server)} }

func (b *bench) at(t *testing.T, now time.Duration) {
	t.Helper()
	b.now = now
	must(t, b.clock.Put(uint32(0), uint64(now)))
}

// run passes a frame through a program and returns its action, the frame and the counters that
// moved.
func (b *bench) run(t *testing.T, prog *ebpf.Program, frame []byte) rig.Outcome {
	t.Helper()
	return rig.RunCounted(t, b, prog, frame, b.seen)
}

func (b *bench) fromClient(t *testing.T, packet []byte) rig.Outcome {
	t.Helper()
	return b.run(t, b.Objects().EdgeClients, wire.Frame(b.macs["clients"], rig.RouterMAC, packet))
}

func (b *bench) fromWorld(t *testing.T, packet []byte) rig.Outcome {
	t.Helper()
	return b.run(t, b.Objects().EdgeWorld, wire.Frame(b.macs["world"], rig.RouterMAC, packet))
}

// fromNode sends a packet in a tunnel back to the LB.
func (b *bench) fromNode(t *testing.T, tunnel wire.Tunnel, packet []byte) rig.Outcome {
	t.Helper()
	return b.run(t, b.Objects().EdgeBack, tunnel.Around(packet))
}

// tunnelled parses the frame that went to a node, and checks all its headers by building it again.
func (b *bench) tunnelled(t *testing.T, label string, out rig.Outcome, packet []byte, reasons ...string) wire.Tunnel {
	t.Helper()
	out.Is(t, label, redirect, nil, reasons...)
	tunnel, inside, err := wire.ParseTunnel(out.Frame)
	if err != nil {
		t.Fatalf("%s: %v", label, err)
	}
	if !slices.Equal(inside, packet) || !slices.Equal(tunnel.Around(packet), out.Frame) {
		t.Fatalf("%s: the frame is\n%x\nand not\n%x", label, out.Frame, tunnel.Around(packet))
	}
	i := slices.Index([]int{1, 200}, tunnel.Instance.Server)
	if i < 0 || tunnel.To != nodeAddr[i] || tunnel.From != lbAddr[i] || tunnel.LinkTo != nodeMAC(tunnel.Instance.Server) ||
		tunnel.LinkFrom != b.macs[nodesLink] || tunnel.Instance.Service != service || tunnel.Instance.Update {
		t.Fatalf("%s: the tunnel is %+v", label, tunnel)
	}
	return tunnel
}

// back is the tunnel of a packet that a node changed.
func back(to wire.Tunnel) wire.Tunnel {
	to.LinkTo, to.LinkFrom = to.LinkFrom, to.LinkTo
	to.From, to.To = to.To, to.From
	to.Instance.Update = true
	return to
}

// flow is a flow's packet from one end to the other.
type flow struct {
	kind     string // tcp, udp, echo
	from, to netip.AddrPort
}

// later is the flow's packet that does not begin it.
func (f flow) later() []byte {
	if f.kind != "tcp" {
		return f.packet()
	}
	ip := wire.IP{Source: f.from.Addr(), Destination: f.to.Addr(), HopLimit: 50, Class: 0x28, ID: 7}
	return ip.TCP(wire.TCP{From: f.from.Port(), To: f.to.Port(), Flags: wire.ACK}, []byte("payload"))
}

func (f flow) reversed() flow { return flow{f.kind, f.to, f.from} }

func (f flow) packet() []byte {
	ip := wire.IP{Source: f.from.Addr(), Destination: f.to.Addr(), HopLimit: 50, Class: 0x28, ID: 7}
	switch f.kind {
	case "tcp":
		return ip.TCP(wire.TCP{From: f.from.Port(), To: f.to.Port(), Flags: wire.SYN}, []byte("payload"))
	case "udp":
		return ip.UDP(f.from.Port(), f.to.Port(), []byte("payload"))
	}
	kind := byte(8)
	if ip.Source.Is6() {
		kind = 128
	}
	return ip.ICMP(kind, 0, uint32(f.from.Port())<<16|1, []byte("echo"))
}

// hash is the digest under which the LB knows the flow, which begins at the client network's end.
func (f flow) hash() uint64 {
	protocol := map[string]topo.Protocol{"tcp": topo.TCP, "udp": topo.UDP}[f.kind]
	return policy.NewDigestKey(key).Digest(policy.Flow{Client: f.from, VIP: f.to, Protocol: protocol})
}

// from4 and from6 are flows of the client network.
func from4(kind string, port int) flow {
	return flow{kind, netip.AddrPortFrom(client4, uint16(port)), netip.AddrPortFrom(remote4, 80)}
}

func from6(kind string, port int) flow {
	return flow{kind, netip.AddrPortFrom(client6, uint16(port)), netip.AddrPortFrom(remote6, 80)}
}

func (b *bench) flows(t *testing.T) (n int) {
	t.Helper()
	var hash uint64
	var f objects.EdgeEdgeFlow
	for all := b.Objects().EdgeFlows.Iterate(); all.Next(&hash, &f); {
		n++
	}
	return n
}

func (f flow) String() string { return fmt.Sprintf("%s %v to %v", f.kind, f.from, f.to) }
