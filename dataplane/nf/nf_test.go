package nf_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/dataplane/nf"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// The node of the tests: number 3, two cores, one LB; service 1 costs time, service 2 has a cost
// and source NAT.
var (
	client4, client6 = netip.MustParseAddr("10.1.0.7"), netip.MustParseAddr("2001:db8:1::7")
	remote4, remote6 = netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("2001:db8:9::9")
	public4, public6 = netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8:ffff::1")
	nodeAddr, lbAddr = netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.1")
	lbMAC            = topo.MAC{2, 0, 0, 0, 0, 0x42}
	routerMAC        = topo.MAC{2, 0, 0, 0, 0, 0x43}
	here             = topo.MAC{2, 0, 0, 0, 0, 0x44}
)

const (
	server, costly, natted = 3, 1, 2
	redirect               = 4
	first, ports           = 2048, 64
)

func config() *topo.Datapath {
	cost := topo.Cost{Each: time.Microsecond}
	return &topo.Datapath{
		Server: server, Link: "lb", LBs: []netip.Addr{lbAddr}, Cores: 2,
		Clients: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8:1::/48")},
		Chains: []topo.Chain{
			{Service: costly, Functions: []topo.Function{cost}},
			{Service: natted, Functions: []topo.Function{cost, topo.SourceNAT{Public4: public4, Public6: public6, First: first, Ports: ports}}},
		},
		Idle: 10 * time.Second, Linger: time.Second,
	}
}

// bench is a loaded node in a namespace of its own.
type bench struct {
	*nf.Node
	clock *ebpf.Map
	now   time.Duration
	seen  rig.Hits
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newBench(t *testing.T, seen rig.Hits, change ...func(*topo.Datapath)) *bench {
	t.Helper()
	enter(t)
	cfg := config()
	for _, c := range change {
		c(cfg)
	}
	b := &bench{seen: seen}
	var err error
	b.Node, err = nf.NewWith(cfg, func(spec *ebpf.CollectionSpec) error { return spec.Variables["virtual_time"].Set(true) })
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	must(t, b.SetNextHop(0, lbMAC))
	b.clock = rig.SectionOf(t, b.Objects().NodeNat, ".bss")
	b.at(t, rig.Start)
	return b
}

// TestMoreCoresThanCPUs: cores with CPUs of their own are as many as the machine has at most.
func TestMoreCoresThanCPUs(t *testing.T) {
	enter(t)
	cpus, err := ebpf.PossibleCPU()
	must(t, err)
	cfg := config()
	cfg.Spread, cfg.Cores = true, cpus+1
	n, err := nf.New(cfg)
	want := fmt.Sprintf("cores: %d with cpus: own, and this machine has %d CPUs: give cores at most %[2]d, or cpus: shared", cpus+1, cpus)
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err == nil {
		must(t, n.Close())
	}
}

// enter moves the test into a namespace with the node's link and a router behind it.
func enter(t *testing.T) {
	t.Helper()
	rig.NeedRoot(t)
	runtime.LockOSThread()
	must(t, unix.Unshare(unix.CLONE_NEWNET))
	must(t, os.WriteFile("/proc/sys/net/ipv4/conf/all/forwarding", []byte("1"), 0))
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lb", MTU: 1600, HardwareAddr: here[:]}, PeerName: "far"}))
	for _, name := range []string{"lo", "lb", "far"} {
		l, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(l))
	}
	l, err := netlink.LinkByName("lb")
	must(t, err)
	addr, err := netlink.ParseAddr(nodeAddr.String() + "/24")
	must(t, err)
	must(t, netlink.AddrAdd(l, addr))
	router, index := net.IPv4(192, 0, 2, 9), l.Attrs().Index
	must(t, netlink.NeighAdd(&netlink.Neigh{LinkIndex: index, IP: router, HardwareAddr: routerMAC[:], State: netlink.NUD_PERMANENT}))
	must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: index, Gw: router, Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}}))
}

func (b *bench) at(t *testing.T, now time.Duration) {
	t.Helper()
	b.now = now
	must(t, b.clock.Put(uint32(0), uint64(now)))
}

// run passes a frame through the node and sees which counters moved.
func (b *bench) run(t *testing.T, frame []byte) rig.Outcome {
	t.Helper()
	return b.runs(t, b.Objects().Node, frame)
}

func (b *bench) runs(t *testing.T, program *ebpf.Program, frame []byte) rig.Outcome {
	t.Helper()
	return rig.RunCounted(t, b, program, frame, b.seen)
}

// to is the tunnel of a packet from the LB to a core.
func to(core, service int) wire.Tunnel {
	return wire.Tunnel{
		LinkTo: here, LinkFrom: lbMAC, From: lbAddr, To: nodeAddr, Class: 0x28, Flow: 0x0123456789abcdef,
		Instance: wire.Instance{Server: server, Core: core, Service: service},
	}
}

func around(w wire.Tunnel, packet []byte) []byte { return rig.Around(w, packet, public4, public6) }

// flow is a flow's packet from one end to the other.
type flow struct {
	kind     string // tcp, udp, echo
	from, to netip.AddrPort
	flags    byte // tcp
}

func outward(kind string, family, port int) flow {
	f := flow{kind, netip.AddrPortFrom(client4, uint16(port)), netip.AddrPortFrom(remote4, 80), wire.SYN}
	if family == 6 {
		f.from, f.to = netip.AddrPortFrom(client6, uint16(port)), netip.AddrPortFrom(remote6, 80)
	}
	return f
}

func (f flow) packet() []byte {
	ip := wire.IP{Source: f.from.Addr(), Destination: f.to.Addr(), HopLimit: 50, Class: 0x28, ID: 7}
	switch f.kind {
	case "tcp":
		s := wire.TCP{From: f.from.Port(), To: f.to.Port(), Flags: f.flags}
		if f.flags&wire.RST != 0 { // after the SYN and its payload, of either end
			s.Seq, s.Ack = 8, 8
		}
		return ip.TCP(s, []byte("payload"))
	case "udp":
		return ip.UDP(f.from.Port(), f.to.Port(), []byte("payload"))
	}
	kind, id := byte(8), f.from.Port()
	if ip.Source.Is6() {
		kind = 128
	}
	if f.to.Port() != 80 { // an answer
		kind, id = map[byte]byte{8: 0, 128: 129}[kind], f.to.Port()
	}
	return ip.ICMP(kind, 0, uint32(id)<<16|1, []byte("echo"))
}

func (f flow) reversed() flow { return flow{f.kind, f.to, f.from, f.flags} }

// later is the flow's segment that does not begin it.
func (f flow) later() flow {
	f.flags = wire.ACK
	return f
}

// after is the flow after source NAT to a port.
func (f flow) after(port uint16) flow {
	f.from = netip.AddrPortFrom(public4, port)
	if f.to.Addr().Is6() {
		f.from = netip.AddrPortFrom(public6, port)
	}
	return f
}

// portOf reads the source port, or identifier, of a packet that came back.
func portOf(t *testing.T, label string, out rig.Outcome, kind string) uint16 {
	t.Helper()
	_, packet, err := wire.ParseTunnel(out.Frame)
	if err != nil {
		t.Fatalf("%s: action %d, %v: %v", label, out.Action, out.Reasons, err)
	}
	upper := packet[wire.IPv4Bytes:]
	if packet[0]>>4 == 6 {
		upper = packet[wire.IPv6Bytes:]
	}
	if kind == "echo" {
		return binary.BigEndian.Uint16(upper[4:])
	}
	return binary.BigEndian.Uint16(upper)
}
