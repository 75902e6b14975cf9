package testbed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The edge of the SR domain (RFC 8754 §5.1): a packet from the client does
// not pass the router if it is for a SID, has a SID as its source, or has a
// routing header.

func (b *Bed) guard() error {
	err := b.Router.space.filter(b.Client.Link, netlink.HANDLE_MIN_INGRESS, b.programs.edge)
	return wrap("testbed: edge", err)
}

// EdgeDrops counts the packets that the edge dropped. It fails once the bed is closed.
func (b *Bed) EdgeDrops() (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return 0, errClosed
	}
	return b.programs.shared.edge.Load(), nil
}

// guarding drops packets that may not enter. r2 goes along the headers, r3 is the end
// of the frame; a truncated packet goes to the kernel, which drops it.
func guarding(array *os.File) *assembly {
	const (
		data, dataEnd         = 76, 80 // in struct __sk_buff
		etherType             = 12
		next, source, target  = 14 + 6, 14 + 8, 14 + 24
		ethernetIPv6          = 14 + 40
		hopByHop, destination = unix.IPPROTO_HOPOPTS, unix.IPPROTO_DSTOPTS
		most                  = 4 // headers of options; RFC 8200 §4.1 has use for three
	)
	block := host16(SIDBlock().Addr().As16())
	a := newAssembly()
	a.point(r6, array)
	a.read(unix.BPF_W, r2, r1, data)
	a.read(unix.BPF_W, r3, r1, dataEnd)
	a.move(r4, r2)
	a.plus(r4, ethernetIPv6)
	a.compare(unix.BPF_JGT, r4, r3, "pass")
	a.read(unix.BPF_H, r4, r2, etherType)
	a.jump(unix.BPF_JNE, r4, host16([16]byte{0x86, 0xdd}), "pass")
	for _, address := range []int16{source, target} {
		a.read(unix.BPF_H, r4, r2, address)
		a.jump(unix.BPF_JEQ, r4, block, "drop")
	}
	a.read(unix.BPF_B, r5, r2, next)
	a.plus(r2, ethernetIPv6)
	for i := range most {
		options := fmt.Sprintf("options %d", i)
		a.jump(unix.BPF_JEQ, r5, unix.IPPROTO_ROUTING, "drop")
		a.jump(unix.BPF_JEQ, r5, hopByHop, options)
		a.jump(unix.BPF_JNE, r5, destination, "pass")
		a.label(options)
		a.move(r4, r2)
		a.plus(r4, 8)
		a.compare(unix.BPF_JGT, r4, r3, "pass")
		a.read(unix.BPF_B, r5, r2, 0) // next header
		a.read(unix.BPF_B, r4, r2, 1) // length in 8 bytes, the first 8 not counted
		a.add(unix.BPF_ALU64|unix.BPF_LSH|unix.BPF_K, r4, 0, 0, 3)
		a.plus(r4, 8)
		a.sum(r2, r4)
	}
	a.label("drop")
	a.count(r6, atEdge)
	a.leave(tcDrop)
	a.label("pass")
	a.leave(tcPass)
	return a
}

// host16 is the first two bytes as a number in this machine's byte order.
func host16(bytes [16]byte) int32 { return int32(binary.NativeEndian.Uint16(bytes[:2])) }

// MaxEdgeNodes is the most datapath nodes of an edge's bed.
const MaxEdgeNodes = 16

// Addresses of an edge's bed.
var (
	EdgeClients = netip.MustParsePrefix("10.1.0.0/16") // the client network
	EdgeClient  = []netip.Addr{                        // the client, in either half of its network
		netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.1.128.2"),
	}
	EdgeWorld  = netip.MustParseAddr("198.18.0.2")        // a host of the world
	EdgePublic = netip.MustParseAddr("203.0.113.1")       // for source NAT, by way of the LB
	EdgeSink   = netip.MustParsePrefix("198.51.100.0/24") // the world drops these packets
)

// EdgeBed is namespaces of EdgeBalance's testbed: an LB between a client network and the world, and
// datapath nodes at the LB, which have links to both of their own, for packets that no function changes.
//
//	client ──(10.1.0.0/16)── lb ──(198.18.0.0/24)── world
//	   └──(10.9.i.0/24)── n i ──(198.19.i.0/24)──────┘
//	                       └──(192.0.2.4i/30)── lb
type EdgeBed struct {
	Run    string
	Dir    string // as Bed's
	Client *Node
	LB     *Node
	World  *Node
	Nodes  []*Node
	bed    *Bed
}

// EdgeUp builds a bed with so many datapath nodes, as Up does.
func EdgeUp(ctx context.Context, nodes int) (bed *EdgeBed, err error) {
	if nodes < 1 || nodes > MaxEdgeNodes {
		return nil, fmt.Errorf("testbed: %d datapath nodes: say 1 to %d", nodes, MaxEdgeNodes)
	}
	if err := able(); err != nil {
		return nil, err
	}
	if _, err := Reap(); err != nil {
		return nil, err
	}
	state, run, err := claim()
	if err != nil {
		return nil, err
	}
	e := &EdgeBed{Run: run, Dir: state.Name(), bed: &Bed{Run: run, Dir: state.Name(), state: state, spawner: newSpawner()}}
	defer func() { // runs in a panic, too
		if bed == nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if err := e.build(ctx, nodes); err != nil {
		return nil, explain(err)
	}
	return e, nil
}

// Close ends every process in the bed and removes all that EdgeUp made.
func (e *EdgeBed) Close() error { return e.bed.Close() }

// All are the nodes of the bed.
func (e *EdgeBed) All() []*Node { return append([]*Node{e.Client, e.LB, e.World}, e.Nodes...) }

// EdgeLBAddr and EdgeNodeAddr are the ends of the LB's link to datapath node i.
func EdgeLBAddr(i int) netip.Addr   { return netip.AddrFrom4([4]byte{192, 0, 2, byte(4*i + 1)}) }
func EdgeNodeAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(4*i + 2)}) }

func (e *EdgeBed) build(ctx context.Context, nodes int) error {
	if err := shareNamespaceDir(); err != nil {
		return err
	}
	e.Client, e.LB, e.World = e.node("client"), e.node("lb"), e.node("world")
	for i := range nodes {
		e.Nodes = append(e.Nodes, e.node(fmt.Sprintf("n%d", i)))
	}
	defer shut(e.All())
	if err := each(ctx, e.All(), (*Node).create); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("testbed: interrupted: %w", err)
	}
	return wrap("testbed", e.lay())
}

// node is a host, and a router besides.
func (e *EdgeBed) node(name string) *Node {
	n := e.bed.node(name)
	n.plan.sysctls = append(forwarding("1"), quiet()...)
	return n
}

// lay lays the links, and gives them routes.
func (e *EdgeBed) lay() error {
	const mtu, tunnelled = MTU, MTU + 70 // VXLAN over IPv6
	prefix := netip.MustParsePrefix
	cables := []edgeCable{
		{e.Client, "lb", netip.PrefixFrom(EdgeClient[0], 16), e.LB, "clients", prefix("10.1.0.1/16"), mtu},
		{e.LB, "world", prefix("198.18.0.1/24"), e.World, "lb", netip.PrefixFrom(EdgeWorld, 24), mtu},
	}
	routes := []edgeRoute{
		{e.Client, "lb", everywhere(EdgeWorld), "10.1.0.1"},
		{e.World, "lb", everywhere(EdgeWorld), "198.18.0.1"},
		{e.LB, "world", EdgeSink, EdgeWorld.String()},
	}
	for i, n := range e.Nodes {
		client, world := [2]byte{10, 9}, [2]byte{198, 19}
		at := func(net [2]byte, host byte) netip.Prefix {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{net[0], net[1], byte(i), host}), 24)
		}
		cables = append(cables,
			edgeCable{e.LB, n.Name, netip.PrefixFrom(EdgeLBAddr(i), 30), n, "lb", netip.PrefixFrom(EdgeNodeAddr(i), 30), tunnelled},
			edgeCable{n, "client", at(client, 1), e.Client, n.Name, at(client, 2), mtu},
			edgeCable{n, "world", at(world, 1), e.World, n.Name, at(world, 2), mtu})
		back, out := at(client, 2).Addr().String(), at(world, 2).Addr().String()
		routes = append(routes, edgeRoute{n, "client", EdgeClients, back},
			edgeRoute{n, "world", prefix("198.18.0.0/24"), out}, edgeRoute{n, "world", EdgeSink, out})
	}
	for _, n := range e.All() {
		if err := n.space.up("lo"); err != nil {
			return err
		}
	}
	for _, c := range cables {
		if err := c.lay(); err != nil {
			return err
		}
	}
	if err := e.Client.space.address("lb", netip.PrefixFrom(EdgeClient[1], 16)); err != nil {
		return err
	}
	for _, r := range routes {
		if err := r.by.space.route(r.link, netlink.Route{Dst: ipNet(r.to), Gw: netip.MustParseAddr(r.gateway).AsSlice()}); err != nil {
			return err
		}
	}
	sink := netlink.Route{Dst: ipNet(EdgeSink), Type: unix.RTN_BLACKHOLE}
	return wrap("make the sink", e.World.space.netlink.RouteAdd(&sink))
}

// edgeRoute is a route of a node.
type edgeRoute struct {
	by      *Node
	link    string
	to      netip.Prefix
	gateway string
}

// edgeCable joins two nodes, both ends with their addresses.
type edgeCable struct {
	a       *Node
	name    string
	at      netip.Prefix
	z       *Node
	far     string
	farAt   netip.Prefix
	largest int // MTU
}

// lay makes both ends take frames that programs redirect to them.
func (c edgeCable) lay() error {
	a, z := end{&c.a.space, c.name}, end{&c.z.space, c.far}
	if err := joinOf(a, z, c.largest); err != nil {
		return err
	}
	for _, e := range []struct {
		end
		at netip.Prefix
	}{{a, c.at}, {z, c.farAt}} {
		if err := ethtool(e.space.ethtool, e.name, ethtoolValue{unix.ETHTOOL_SGRO, 1}); err != nil { // GRO has NAPI
			return fmt.Errorf("turn GRO of %s on: %w", e.name, err)
		}
		if err := e.space.address(e.name, e.at); err != nil {
			return err
		}
	}
	return nil
}
