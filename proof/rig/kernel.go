package rig

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/wire"
)

// Real sockets of the test's own namespace, for the agent to find.

func Sockaddr(a netip.AddrPort) *unix.SockaddrInet6 {
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// Socket makes a TCP socket that is bound to a and closed with the test.
func Socket(t testing.TB, a netip.AddrPort, options ...int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	for _, o := range append(options, unix.SO_REUSEADDR) {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Bind(fd, Sockaddr(a)); err != nil {
		t.Fatalf("bind to %v: %v", a, err)
	}
	return fd
}

// Listen opens the port of the VIP.
func Listen(t testing.TB, port uint16, backlog int, options ...int) int {
	t.Helper()
	fd := Socket(t, netip.AddrPortFrom(VipAddr, port), options...)
	if err := unix.Listen(fd, backlog); err != nil {
		t.Fatal(err)
	}
	return fd
}

// Dial connects from a port of the client to one of the VIP.
func Dial(t testing.TB, from, to uint16) int {
	t.Helper()
	fd := Socket(t, netip.AddrPortFrom(ClientAddr, from))
	if err := unix.Connect(fd, Sockaddr(netip.AddrPortFrom(VipAddr, to))); err != nil {
		t.Fatalf("connect: %v", err)
	}
	return fd
}

// Eventually waits for an event in the kernel: long, as a process that is to bring it may wait for a CPU.
func Eventually(t testing.TB, event string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", event)
		}
	}
}

// Queue opens n connections that are not accepted and waits until all are queued.
func Queue(t testing.TB, listener int, port uint16, n int) {
	t.Helper()
	for i := range n {
		Dial(t, uint16(50000+i), port)
	}
	Queued(t, n, listener)
}

// Queued waits until the accept queues hold n connections together.
func Queued(t testing.TB, n int, listeners ...int) {
	t.Helper()
	Eventually(t, "queueing", func() bool {
		sum := 0
		for _, fd := range listeners {
			info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
			if err != nil {
				t.Fatal(err)
			}
			sum += int(info.Unacked) // of a listener: sk_ack_backlog
		}
		return sum == n
	})
}

// Established makes a connected socket of p's flow out of nothing, as if the
// client's initial sequence number had been isn and nothing more had come
// (TCP_REPAIR of Documentation/ and tcp(7)). Listeners must come later.
func Established(t testing.TB, p Packet, isn uint32) int {
	t.Helper()
	fd := Socket(t, p.Dst)
	for _, o := range []struct{ name, value int }{
		{unix.TCP_REPAIR, 1},
		{unix.TCP_REPAIR_QUEUE, 1}, {unix.TCP_QUEUE_SEQ, int(isn + 1)}, // receive
		{unix.TCP_REPAIR_QUEUE, 2}, {unix.TCP_QUEUE_SEQ, 9000}, // send
	} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, o.name, o.value); err != nil {
			t.Fatalf("TCP option %d: %v", o.name, err)
		}
	}
	if err := unix.Connect(fd, Sockaddr(p.Src)); err != nil {
		t.Fatalf("repair a connection: %v", err)
	}
	return fd
}

// TimeWait leaves the server's side of p's flow in TIME_WAIT.
func TimeWait(t testing.TB, listener int, p Packet) {
	t.Helper()
	client := Dial(t, p.Src.Port(), p.Dst.Port())
	server, _, err := unix.Accept(listener)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(server)
	if n, err := unix.Read(client, make([]byte, 1)); n != 0 || err != nil { // until its wire.FIN is here
		t.Fatalf("read: %d, %v", n, err)
	}
	if err := unix.Shutdown(client, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "TIME_WAIT", func() bool {
		all, err := netlink.SocketDiagTCP(unix.AF_INET6)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.State == netlink.TCP_TIME_WAIT && s.ID.SourcePort == p.Dst.Port() {
				return true
			}
		}
		return false
	})
}

// Request sends the wire.SYN of p over the wire, so that the kernel holds a request
// socket for it, and returns the sequence number of the kernel's wire.SYN-wire.ACK. The
// client must not be local; this makes it a neighbour.
func Request(t testing.TB, p Packet) uint32 {
	t.Helper()
	dev, far := LinkIndex(t, Device), LinkIndex(t, FarEnd)
	host := netlink.NewIPNet(p.Src.Addr().AsSlice())
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: dev, Dst: host}); err != nil {
		t.Fatal(err)
	}
	err := netlink.NeighSet(&netlink.Neigh{
		LinkIndex: dev, IP: p.Src.Addr().AsSlice(), HardwareAddr: RouterMAC[:],
		State: netlink.NUD_PERMANENT, Family: unix.AF_INET6,
	})
	if err != nil {
		t.Fatal(err)
	}
	protocol := int(objects.PortBits(unix.ETH_P_IPV6))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(protocol), Ifindex: far}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, p.Frame()); err != nil {
		t.Fatal(err)
	}
	for buffer := make([]byte, 2048); ; {
		n, err := unix.Read(fd, buffer)
		if err != nil {
			t.Fatalf("wait for the wire.SYN-ACK: %v", err)
		}
		if b := buffer[:n]; n >= 74 && b[AtNext] == 6 && b[AtUpper+13] == wire.SYN|wire.ACK {
			return binary.BigEndian.Uint32(b[AtUpper+4:])
		}
	}
}

// Reset ends a connection with a wire.RST, and leaves the descriptor to its owner.
func Reset(t testing.TB, fd int) {
	t.Helper()
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		t.Fatal(err)
	}
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	if err := unix.Dup3(null, fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
}

// Uptime is the clock of the agent's programs where it is not virtual.
func Uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the kernel always has this clock
	}
	return time.Duration(ts.Nano())
}
