package edge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/topo"
	"proffer/wire"
)

// Two more services of the edge, each with a host behind the client, which sends their packets to the LB even
// where they are for each other: service 3 has a firewall and source NAT, service 4 a firewall, which lets
// any address begin connections to port 80.
const edgeBehindNAT, edgeOpen = 3, 4

var sideHosts = map[int][2]netip.Addr{
	edgeBehindNAT: {netip.MustParseAddr("10.3.0.2"), netip.MustParseAddr("2001:db8:3::2")},
	edgeOpen:      {netip.MustParseAddr("10.4.0.2"), netip.MustParseAddr("2001:db8:4::2")},
}

var sidePublic = [2]netip.Addr{kit.EdgePublic, netip.MustParseAddr("2001:db8:f::1")}

type sidesBed struct {
	*kit.EdgeBed
	host   map[int]*testbed.Node // by service
	socket string                // of the LB
	nodes  []string              // sockets
}

// newSides builds it with its daemons.
func newSides(t *testing.T) *sidesBed {
	t.Helper()
	b := &sidesBed{EdgeBed: kit.NewSpaces(t), host: map[int]*testbed.Node{}}
	for _, n := range append([]*testbed.Node{b.Client, b.Balancer, b.World}, b.Nodes...) {
		kit.Inside(t, n, "sysctl", "-q", "-w", "net.ipv6.conf.all.forwarding=1")
	}
	six := func(n *testbed.Node, dev, addr string) {
		kit.Inside(t, n, "ip", "addr", "add", addr, "dev", dev, "nodad")
	}
	six(b.Balancer, "clients", "2001:db8:1::1/64")
	six(b.Client, "lb", "2001:db8:1::2/64")
	for _, family := range [][]string{{"-4", "10.1.0.1"}, {"-6", "2001:db8:1::1"}} {
		kit.Inside(t, b.Client, "ip", family[0], "route", "add", "default", "via", family[1], "table", "100")
	}
	for service, name := range map[int]string{edgeBehindNAT: "d3", edgeOpen: "d4"} {
		n := kit.NewSpace(t, name)
		b.host[service] = n
		kit.Cable(t, n, "out", fmt.Sprintf("10.%d.0.2/24", service), b.Client, name, fmt.Sprintf("10.%d.0.1/24", service), 1500)
		six(n, "out", fmt.Sprintf("2001:db8:%d::2/64", service))
		six(b.Client, name, fmt.Sprintf("2001:db8:%d::1/64", service))
		for _, f := range [][4]string{
			{"-4", fmt.Sprintf("10.%d.0.0/24", service), fmt.Sprintf("10.%d.0.1", service), "10.1.0.2"},
			{"-6", fmt.Sprintf("2001:db8:%d::/64", service), fmt.Sprintf("2001:db8:%d::1", service), "2001:db8:1::2"},
		} {
			kit.Inside(t, n, "ip", f[0], "route", "add", "default", "via", f[2])
			kit.Inside(t, b.Client, "ip", f[0], "rule", "add", "iif", name, "lookup", "100")
			kit.Inside(t, b.Balancer, "ip", f[0], "route", "add", f[1], "via", f[3])
		}
	}
	for i, n := range b.Nodes {
		six(b.Balancer, n.Name, fmt.Sprintf("2001:db8:9%d::1/64", i))
		six(n, "lb", fmt.Sprintf("2001:db8:9%d::2/64", i))
		kit.Inside(t, n, "ip", "-4", "route", "add", "default", "via", fmt.Sprintf("192.0.2.%d", 4*i+1))
		kit.Inside(t, n, "ip", "-6", "route", "add", "default", "via", fmt.Sprintf("2001:db8:9%d::1", i))
	}
	b.run(t)
	return b
}

// run starts the daemons.
func (b *sidesBed) run(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for i, n := range b.Nodes {
		file, socket := filepath.Join(dir, n.Name+".yaml"), filepath.Join(dir, n.Name+".sock")
		kit.Must(t, os.WriteFile(file, fmt.Appendf(nil, `name: n%[1]d
control: %[2]s
number: %[1]d
link: lb
lbs: [192.0.2.%[3]d]
cores: %[4]d
linger: 1s
clients: [10.3.0.0/24, 10.4.0.0/24, "2001:db8:3::/64", "2001:db8:4::/64"]
chains:
  - service: 3
    functions:
      - {function: firewall, rules: [{action: allow, source: 10.3.0.0/24}, {action: allow, source: "2001:db8:3::/64"}]}
      - {function: nat, public4: %[5]s, public6: "%[6]s", first_port: %[7]d, ports: %[8]d}
  - service: 4
    functions:
      - function: firewall
        rules:
          - {action: allow, source: 10.4.0.0/24}
          - {action: allow, source: "2001:db8:4::/64"}
          - {action: allow, protocol: tcp, ports: 80}
`, i, socket, 4*i+1, kit.EdgeCores, sidePublic[0], sidePublic[1], 2048+i*kit.EdgeSpacing, kit.EdgePorts), 0o600))
		runEdge(t, n, "nf", file, socket)
		b.nodes = append(b.nodes, socket)
	}
	b.socket = filepath.Join(dir, "edge.sock")
	text := kit.EdgeFile(dir, 1, 1)
	text = text[:strings.Index(text, "services:")] + `services:
  - {number: 3, cost: 3us, prefixes: [10.3.0.0/24, "2001:db8:3::/64"]}
  - {number: 4, cost: 3us, prefixes: [10.4.0.0/24, "2001:db8:4::/64"]}
`
	text = strings.Replace(text, "/32]", fmt.Sprintf("/32, %q]", sidePublic[1].String()+"/128"), 1)
	file := filepath.Join(dir, "edge.yaml")
	kit.Must(t, os.WriteFile(file, []byte(text), 0o600))
	runEdge(t, b.Balancer, "edge", file, b.socket)
}

// of is a counter of the LB, and of the nodes together.
func (b *sidesBed) of(t *testing.T, counter string) (lb, nodes uint64) {
	t.Helper()
	for _, socket := range b.nodes {
		nodes += edgeStatus(t, socket).Counters[counter]
	}
	return edgeStatus(t, b.socket).Counters[counter], nodes
}

// raw puts packets on a namespace's link to the LB.
func (b *sidesBed) raw(t *testing.T, from *testbed.Node, link string, packets ...[]byte) {
	t.Helper()
	to := kit.LinkAddress(t, b.Balancer, link)
	kit.Must(t, from.Do(func() error {
		on, err := net.InterfaceByName("lb")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, p := range packets {
			frame := wire.Frame(to, topo.MAC(on.HardwareAddr), p)
			err = errors.Join(err, unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: on.Index}))
		}
		return err
	}))
}

// TestEdgeSides: the daemons of an edge judge a packet by the link that it came by.
func TestEdgeSides(t *testing.T) {
	b := newSides(t)
	t.Run("between services", b.between)
	t.Run("forged sources", b.forged)
	t.Run("denied datagrams", b.denied)
	t.Run("forged RST", b.reset)
}

// dial opens a connection from a host, or returns why not.
func (b *sidesBed) dial(from, to *testbed.Node, at netip.AddrPort, wait time.Duration) (conn net.Conn, err error) {
	err = from.Do(func() error {
		conn, err = net.DialTimeout("tcp", at.String(), wait)
		return err
	})
	return conn, err
}

// between: a client of one service reaches one of another through both chains, where both let it pass.
func (b *sidesBed) between(t *testing.T) {
	natted, open := b.host[edgeBehindNAT], b.host[edgeOpen]
	for family := range 2 {
		at := sideHosts[edgeOpen][family]
		listener, err := open.Listen("tcp", netip.AddrPortFrom(at, 80).String())
		kit.Must(t, err)
		t.Cleanup(func() { listener.Close() })
		seen := make(chan netip.AddrPort, 1)
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				seen <- conn.RemoteAddr().(*net.TCPAddr).AddrPort()
				go func() {
					defer conn.Close()
					io.Copy(conn, conn)
				}()
			}
		}()
		conn, err := b.dial(natted, open, netip.AddrPortFrom(at, 80), kit.Within)
		kit.Must(t, err)
		t.Cleanup(func() { conn.Close() })
		if from := <-seen; from.Addr().Unmap() != sidePublic[family] {
			t.Errorf("the other client sees %v, want %v", from, sidePublic[family])
		}
		sent := bytes.Repeat([]byte("0123456789"), 10_000)
		go conn.Write(sent)
		got := make([]byte, len(sent))
		kit.Must(t, conn.SetReadDeadline(time.Now().Add(kit.Patience)))
		if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("the other client's answer: %v", err)
		}
		_, denied := b.of(t, "drop_firewall_denied")
		if conn, err := b.dial(natted, open, netip.AddrPortFrom(at, 81), time.Second); err == nil {
			conn.Close()
			t.Error("a port that the other service's firewall denies answers")
		}
		if _, now := b.of(t, "drop_firewall_denied"); now == denied {
			t.Error("no firewall denied it")
		}
		if conn, err := b.dial(open, natted, netip.AddrPortFrom(sideHosts[edgeBehindNAT][family], 80), time.Second); err == nil {
			conn.Close()
			t.Error("a client behind NAT is reached at its own address")
		}
	}
}

// forged: packets with a source of the other side end at the LB, and begin nothing.
func (b *sidesBed) forged(t *testing.T) {
	var world, clients [][]byte
	for family := range 2 {
		natted, open, public := sideHosts[edgeBehindNAT][family], sideHosts[edgeOpen][family], sidePublic[family]
		outside := []netip.Addr{edgeWorld, netip.MustParseAddr("2001:db8:18::2")}[family]
		foreign := []netip.Addr{netip.MustParseAddr("192.168.7.7"), netip.MustParseAddr("2001:db8:dead::7")}[family]
		forge := func(from, to netip.Addr) [][]byte {
			ip := wire.IP{Source: from, Destination: to, HopLimit: 60}
			return [][]byte{
				ip.TCP(wire.TCP{From: 4000, To: 80, Seq: 1, Flags: wire.SYN}, nil), ip.TCP(wire.TCP{From: 4000, To: 80, Seq: 1, Flags: wire.ACK}, nil),
				ip.UDP(4000, 53, []byte("forged")),
			}
		}
		for _, source := range []netip.Addr{natted, open, public} {
			for _, destination := range []netip.Addr{natted, open, public} {
				world = append(world, forge(source, destination)...)
			}
		}
		for _, source := range []netip.Addr{foreign, public, outside} {
			for _, destination := range []netip.Addr{outside, open, public} {
				clients = append(clients, forge(source, destination)...)
			}
		}
	}
	was, _ := b.of(t, "drop_wrong_side")
	begun, _ := b.of(t, "flow_begun")
	_, admitted := b.of(t, "firewall_admitted")
	_, bound := b.of(t, "nat_bound")
	b.raw(t, b.World, "world", world...)
	b.raw(t, b.Client, "clients", clients...)
	kit.Eventually(t, "every forged packet is dropped", func() bool {
		n, _ := b.of(t, "drop_wrong_side")
		return n == was+uint64(len(world)+len(clients))
	})
	nowBegun, _ := b.of(t, "flow_begun")
	_, nowAdmitted := b.of(t, "firewall_admitted")
	if _, nowBound := b.of(t, "nat_bound"); nowBegun != begun || nowAdmitted != admitted || nowBound != bound {
		t.Errorf("forged packets began %d flows, %d at a firewall, %d at NAT", nowBegun-begun, nowAdmitted-admitted, nowBound-bound)
	}
}

// denied: datagrams of the world that a firewall denies leave no flow anywhere.
func (b *sidesBed) denied(t *testing.T) {
	const flows = 500
	var packets [][]byte
	for i := range flows {
		for family, outside := range []netip.Addr{edgeWorld, netip.MustParseAddr("2001:db8:18::2")} {
			ip := wire.IP{Source: outside, Destination: sideHosts[edgeOpen][family], HopLimit: 60}
			packets = append(packets, ip.UDP(uint16(5000+i), 53, []byte("unsolicited")))
		}
	}
	begun, _ := b.of(t, "flow_begun")
	tried, _ := b.of(t, "flow_tried")
	_, admitted := b.of(t, "firewall_admitted")
	_, was := b.of(t, "drop_firewall_denied")
	for some := range slices.Chunk(packets, 50) {
		b.raw(t, b.World, "world", some...)
		time.Sleep(10 * time.Millisecond) // not more than queues hold
	}
	kit.Eventually(t, "the firewalls deny most of them", func() bool {
		_, n := b.of(t, "drop_firewall_denied")
		return n >= was+flows
	})
	nowBegun, _ := b.of(t, "flow_begun")
	nowTried, _ := b.of(t, "flow_tried")
	if _, nowAdmitted := b.of(t, "firewall_admitted"); nowBegun != begun || nowAdmitted != admitted || nowTried < tried+flows {
		t.Errorf("%d packets tried; they began %d flows at the LB and %d at firewalls", nowTried-tried, nowBegun-begun, nowAdmitted-admitted)
	}
}

// reset: a RST that is forged from either side leaves a connection behind NAT as it is, through a pause
// above `linger`.
func (b *sidesBed) reset(t *testing.T) {
	listener, err := b.World.Listen("tcp", netip.AddrPortFrom(edgeWorld, 8080).String())
	kit.Must(t, err)
	t.Cleanup(func() { listener.Close() })
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := listener.Accept(); err == nil {
			accepted <- conn
		}
	}()
	conn, err := b.dial(b.host[edgeBehindNAT], b.World, netip.AddrPortFrom(edgeWorld, 8080), kit.Within)
	kit.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	far := <-accepted
	t.Cleanup(func() { far.Close() })
	say := func(from, to net.Conn) {
		t.Helper()
		_, err := from.Write([]byte("hello"))
		kit.Must(t, err)
		kit.Must(t, to.SetReadDeadline(time.Now().Add(kit.Patience)))
		if _, err := io.ReadFull(to, make([]byte, 5)); err != nil {
			t.Errorf("after forged RSTs: %v", err)
		}
	}
	say(conn, far)
	say(far, conn)
	client, public, world := conn.LocalAddr().(*net.TCPAddr).AddrPort(), far.RemoteAddr().(*net.TCPAddr).AddrPort(), netip.AddrPortFrom(edgeWorld, 8080)
	for _, seq := range []uint32{0, 1 << 31} { // out of one window at least
		rst := wire.TCP{Seq: seq, Flags: wire.RST}
		b.raw(t, b.World, "world", kit.TCPBetween(world, netip.AddrPortFrom(public.Addr().Unmap(), public.Port()), rst))
		b.raw(t, b.Client, "clients", kit.TCPBetween(netip.AddrPortFrom(client.Addr().Unmap(), client.Port()), world, rst))
		time.Sleep(4 * time.Second) // `linger` and some sweeps
		say(conn, far)
		say(far, conn)
	}
}
