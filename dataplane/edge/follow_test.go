package edge_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

func linkBy(t *testing.T, name string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	must(t, err)
	return l
}

// unaddress takes an address off a link.
func unaddress(t *testing.T, link, addr string) {
	t.Helper()
	a, err := netlink.ParseAddr(addr)
	must(t, err)
	must(t, netlink.AddrDel(linkBy(t, link), a))
}

// follows has the LB follow a change that contains a text.
func (b *bench) follows(t *testing.T, want string) {
	t.Helper()
	if changed, err := b.Follow(); err != nil || !strings.Contains(changed, want) || want == "" && changed != "" {
		t.Errorf("it followed %q, %v; want %q", changed, err, want)
	}
}

// alive is a node's answer to a probe.
func (b *bench) alive(from, to netip.Addr) wire.Tunnel {
	return wire.Tunnel{LinkTo: b.macs[nodesLink], From: from, To: to, Instance: wire.Instance{Server: 1}, Message: wire.MessageAlive}
}

// TestLateAddress: a node on a link that got its address after the start answers, by a reload and without one;
// packets for an address that is gone are no tunnel's.
func TestLateAddress(t *testing.T) {
	b := newBench(t, rig.Hits{})
	near, far := netip.MustParseAddr("192.0.2.129"), netip.MustParseAddr("192.0.2.130")
	unaddress(t, nodesLink, lbAddr[0].String()+"/24")
	address(t, nodesLink, near.String()+"/25")
	later := config()
	later.Nodes[0].Addr = far
	must(t, b.Apply(later))
	must(t, b.SetNextHop(1, nodeMAC(1)))
	b.fromNode(t, b.alive(far, near), []byte{0x45}).Is(t, "an address before a reload", rig.XDPDrop, nil, "alive")
	b.fromNode(t, b.alive(far, lbAddr[0]), []byte{0x45}).Is(t, "an address that is gone", rig.XDPPass, nil, "pass_not_tunnel")
	next := near.Prev()
	unaddress(t, nodesLink, near.String()+"/25")
	address(t, nodesLink, next.String()+"/24")
	b.follows(t, "address 192.0.2.129 for 192.0.2.130 is now 192.0.2.128")
	b.fromNode(t, b.alive(far, next), []byte{0x45}).Is(t, "another address", rig.XDPDrop, nil, "alive")
	b.follows(t, "")
	if b.Address(1) != next {
		t.Errorf("the address for node 1 is %v", b.Address(1))
	}
}

// TestSource: data and probes come from the address of which the prefix has the node in it, whatever the link has
// besides and the kernel's route prefers.
func TestSource(t *testing.T) {
	b := &bench{macs: enter(t), seen: rig.Hits{}}
	for i, first := range []string{"198.19.0.1/24", "fd00:8::1/64"} {
		bits := []string{"/24", "/64"}[i]
		unaddress(t, nodesLink, lbAddr[i].String()+bits)
		address(t, nodesLink, first)
		address(t, nodesLink, lbAddr[i].String()+bits)
		link, to := linkBy(t, nodesLink).Attrs().Index, nodeAddr[i]
		must(t, netlink.NeighAdd(&netlink.Neigh{LinkIndex: link, IP: to.AsSlice(), HardwareAddr: make(net.HardwareAddr, 6), State: netlink.NUD_PERMANENT}))
		must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: link, Src: netip.MustParsePrefix(first).Addr().AsSlice(), Dst: &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(to.BitLen(), to.BitLen())}}))
	}
	load(t, b, config(), "virtual_time")
	for i, server := range []int{1, 200} {
		if got := b.Address(server); got != lbAddr[i] {
			t.Errorf("packets to node %d come from %v, want %v", server, got, lbAddr[i])
		}
	}
	if got := sources(t, nodesLink, func() { must(t, b.Probe()) }); got[lbAddr[0]] != 1 || got[lbAddr[1]] != 1 {
		t.Errorf("probes come from %v, want %v", got, lbAddr)
	}
}

// sources counts the addresses that datagrams of VXLAN leave a link from.
func sources(t *testing.T, link string, send func()) map[netip.Addr]int {
	t.Helper()
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8 // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: linkBy(t, link).Attrs().Index}))
	send()
	seen, frame := map[netip.Addr]int{}, make([]byte, 2048)
	for {
		n, _, err := unix.Recvfrom(fd, frame, 0)
		if err != nil {
			return seen
		}
		if tunnel, _, err := wire.ParseTunnel(frame[:n]); err == nil {
			seen[tunnel.From]++
		}
	}
}

// TestFollowsLinks: address, MTU and name of links are those of now; a link to nodes is taken again when it was made
// again, and without it packets go to other nodes' links; without the world's link the LB ends.
func TestFollowsLinks(t *testing.T) {
	b := newBench(t, rig.Hits{})
	must(t, b.Attach())
	b.follows(t, "")
	was, mac := b.macs["world"], topo.MAC{2, 0, 0, 0, 0, 0x77}
	must(t, netlink.LinkSetHardwareAddr(linkBy(t, "world"), mac[:]))
	must(t, netlink.LinkSetMTU(linkBy(t, nodesLink), 1570))
	b.follows(t, "nodes: MTU 1600 is now 1570; world: address "+net.HardwareAddr(was[:]).String()+" is now "+net.HardwareAddr(mac[:]).String())
	f := from4("udp", 5)
	b.fromWorld(t, f.reversed().packet()).Is(t, "the old address", rig.XDPPass, nil, "pass_other_host")
	b.macs["world"] = mac
	b.tunnelled(t, "the new address", b.fromWorld(t, f.reversed().packet()), f.reversed().packet(), "flow_tried", "steer")
	long := wire.IP{Source: client4, Destination: remote4, HopLimit: 9}.UDP(1, 2, make([]byte, 1501-28))
	out := b.fromClient(t, long)
	out.Is(t, "as long as the old MTU", rig.XDPPass, nil, "flow_begun", "too_big")
	if rest := isError(t, "the new MTU", out.Frame, remote4, client4, 3, 4, long); rest != 1500 {
		t.Errorf("a size of %d, want 1500", rest)
	}
	must(t, netlink.LinkSetName(linkBy(t, nodesLink), "other"))
	b.follows(t, "name nodes is now other")
	if name := b.Link(nodesLink).Name; name != "other" {
		t.Errorf("%s is named %s", nodesLink, name)
	}
	renamed := config()
	renamed.Nodes[0].Link, renamed.Nodes[1].Link = "other", "other"
	must(t, b.Apply(renamed))
	if !isOn(t, "other") {
		t.Error("no program is on the link with another name")
	}
	must(t, netlink.LinkDel(linkBy(t, "other")))
	b.follows(t, "other: the link is gone")
	b.follows(t, "")
	remake(t, "other")
	b.follows(t, "other: the link was made again")
	if !isOn(t, "other") {
		t.Error("no program is on the link that was made again")
	}
	must(t, b.SetNextHop(1, nodeMAC(1)))
	b.macs[nodesLink] = topo.MAC(linkBy(t, "other").Attrs().HardwareAddr)
	must(t, b.SetWeights(service, []float64{1, 0, 0}))
	g := from4("udp", 6)
	b.tunnelled(t, "over the link that was made again", b.fromClient(t, g.packet()), g.packet(), "flow_begun", "steer")
	must(t, netlink.LinkDel(linkBy(t, "world")))
	if _, err := b.Follow(); !errors.Is(err, dataplane.ErrLinkGone) {
		t.Errorf("without the world: %v", err)
	}
}

// TestClientsLinkGone: without the link to the client network the LB ends, as without the world's.
func TestClientsLinkGone(t *testing.T) {
	b := newBench(t, rig.Hits{})
	must(t, b.Attach())
	must(t, netlink.LinkDel(linkBy(t, "clients")))
	if _, err := b.Follow(); !errors.Is(err, dataplane.ErrLinkGone) {
		t.Errorf("without the client network: %v", err)
	}
}

// remake makes a link to nodes.
func remake(t *testing.T, name string) {
	t.Helper()
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1600}, PeerName: name + "-far"}))
	for _, end := range []string{name, name + "-far"} {
		must(t, netlink.LinkSetUp(linkBy(t, end)))
	}
	address(t, name, lbAddr[0].String()+"/24")
	address(t, name, lbAddr[1].String()+"/64")
}

// isOn: an XDP program is on a link.
func isOn(t *testing.T, name string) bool {
	t.Helper()
	xdp := linkBy(t, name).Attrs().Xdp
	return xdp != nil && xdp.Attached
}

// TestPassedBy: a program that another person took off its link is a problem.
func TestPassedBy(t *testing.T) {
	b := newBench(t, rig.Hits{})
	must(t, b.Attach())
	if found, err := b.Problems(); err != nil || len(found) > 0 {
		t.Errorf("problems %q, %v", found, err)
	}
	detach(t, linkBy(t, nodesLink).Attrs().Index)
	want := "the XDP program of nodes was detached by another program"
	if found, err := b.Problems(); err != nil || len(found) != 1 || !strings.Contains(found[0], want) {
		t.Errorf("problems %q, %v; want %q", found, err, want)
	}
}

// detach takes the XDP program off a link, as bpftool does.
func detach(t *testing.T, index int) {
	t.Helper()
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		if info, err := it.Link.Info(); err == nil && info.XDP() != nil && int(info.XDP().Ifindex) == index {
			must(t, it.Link.(interface{ Detach() error }).Detach())
		}
	}
	must(t, it.Err())
}

// TestGeneric: XDP that runs in the stack of a link is named, with the kernel's reason.
func TestGeneric(t *testing.T) {
	b := newBench(t, rig.Hits{})
	must(t, netlink.LinkSetMTU(linkBy(t, "world-far"), 9000))
	must(t, b.Attach())
	want := "XDP runs in the stack and not in the driver of world, much slower: "
	if all := b.Advice(); len(all) != 1 || !strings.HasPrefix(all[0], want) {
		t.Errorf("advice %q, want %q", all, want)
	}
}

// TestEndsAtOnce: cores and next hops of a node meet, as each has its own clock in the daemon, and neither
// undoes the other.
func TestEndsAtOnce(t *testing.T) {
	const times = 20_000
	b := newBench(t, rig.Hits{})
	var hops sync.WaitGroup
	hops.Go(func() {
		for i := range times {
			if err := b.SetNextHop(1, nodeMAC(1+i%2)); err != nil {
				t.Error(err)
			}
		}
	})
	lost := 0
	for i := range times {
		var e objects.EdgeEdgeEnd
		must(t, b.SetCores(1, 1+i%2))
		must(t, b.Objects().EdgeNodes.Lookup(uint32(1), &e))
		if int(e.Cores) != 1+i%2 {
			lost++
		}
	}
	if hops.Wait(); lost > 0 {
		t.Errorf("%d of %d changes of cores were undone", lost, times)
	}
}

// TestServesMacvlans: frames for the address of a macvlan above the link of a side are taken there, and not at the
// other side, where the address is named.
func TestServesMacvlans(t *testing.T) {
	b := newBench(t, rig.Hits{})
	virtual := topo.MAC{0, 0, 0x5e, 0, 2, 1}
	m := &netlink.Macvlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.MACVLAN_MODE_BRIDGE}
	m.Name, m.ParentIndex, m.HardwareAddr = "vrrp.1", linkBy(t, "clients").Attrs().Index, virtual[:]
	frame := wire.Frame(virtual, rig.RouterMAC, from4("udp", 1).packet())
	back := wire.Frame(virtual, rig.RouterMAC, from4("udp", 1).reversed().packet())
	named := func() bool {
		return strings.Contains(strings.Join(b.Advice(), " "), net.HardwareAddr(virtual[:]).String())
	}
	b.run(t, b.Objects().EdgeClients, frame).Is(t, "no macvlan", rig.XDPPass, frame, "pass_other_host")
	b.follows(t, "")
	if !named() {
		t.Errorf("advice %q", b.Advice())
	}
	must(t, netlink.LinkAdd(m))
	must(t, netlink.LinkSetUp(m))
	b.follows(t, "frames for 00:00:5e:00:02:01 are taken")
	if named() {
		t.Errorf("advice about a macvlan's address: %q", b.Advice())
	}
	b.tunnelled(t, "for a macvlan", b.run(t, b.Objects().EdgeClients, frame), from4("udp", 1).packet(), "flow_begun", "steer")
	b.run(t, b.Objects().EdgeWorld, back).Is(t, "at the other side", rig.XDPPass, back, "pass_other_host")
	b.follows(t, "")
	if !named() {
		t.Errorf("advice at the other side: %q", b.Advice())
	}
	must(t, netlink.LinkDel(m))
	b.follows(t, "frames for 00:00:5e:00:02:01 are not taken any more")
	b.run(t, b.Objects().EdgeClients, frame).Is(t, "no macvlan", rig.XDPPass, frame, "pass_other_host")

	listed := &netlink.Neigh{LinkIndex: linkBy(t, "world").Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT, HardwareAddr: virtual[:]}
	must(t, netlink.NeighAppend(listed))
	b.follows(t, "frames for 00:00:5e:00:02:01 are taken")
	b.tunnelled(t, "let in at the other side", b.run(t, b.Objects().EdgeWorld, back), from4("udp", 1).reversed().packet(), "steer")
	b.run(t, b.Objects().EdgeClients, frame).Is(t, "at the other side alone", rig.XDPPass, frame, "pass_other_host")
}
