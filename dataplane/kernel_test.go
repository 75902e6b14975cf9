package dataplane

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Real sockets of the test's own namespace, for the agent to find.

func sockaddr(a netip.AddrPort) *unix.SockaddrInet6 {
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// socket makes a TCP socket that is bound to a and closed with the test.
func socket(t testing.TB, a netip.AddrPort, options ...int) int {
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
	if err := unix.Bind(fd, sockaddr(a)); err != nil {
		t.Fatalf("bind to %v: %v", a, err)
	}
	return fd
}

// listen opens the port of the VIP.
func listen(t testing.TB, port uint16, backlog int, options ...int) int {
	t.Helper()
	fd := socket(t, netip.AddrPortFrom(vipAddr, port), options...)
	if err := unix.Listen(fd, backlog); err != nil {
		t.Fatal(err)
	}
	return fd
}

// dial connects from a port of the client to one of the VIP.
func dial(t testing.TB, from, to uint16) int {
	t.Helper()
	fd := socket(t, netip.AddrPortFrom(clientAddr, from))
	if err := unix.Connect(fd, sockaddr(netip.AddrPortFrom(vipAddr, to))); err != nil {
		t.Fatalf("connect: %v", err)
	}
	return fd
}

// eventually waits for what the kernel is about to do.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// queue opens n connections that nobody accepts and waits until all are queued.
func queue(t testing.TB, listener int, port uint16, n int) {
	t.Helper()
	for i := range n {
		dial(t, uint16(50000+i), port)
	}
	queued(t, n, listener)
}

// queued waits until the accept queues hold n connections together.
func queued(t testing.TB, n int, listeners ...int) {
	t.Helper()
	eventually(t, "queueing", func() bool {
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

// established makes a connected socket of p's flow out of nothing, as if the
// client's initial sequence number had been isn and nothing more had come
// (TCP_REPAIR of Documentation/ and tcp(7)). Listeners must come later.
func established(t testing.TB, p packet, isn uint32) int {
	t.Helper()
	fd := socket(t, p.dst)
	for _, o := range []struct{ name, value int }{
		{unix.TCP_REPAIR, 1},
		{unix.TCP_REPAIR_QUEUE, 1}, {unix.TCP_QUEUE_SEQ, int(isn + 1)}, // receive
		{unix.TCP_REPAIR_QUEUE, 2}, {unix.TCP_QUEUE_SEQ, 9000}, // send
	} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, o.name, o.value); err != nil {
			t.Fatalf("TCP option %d: %v", o.name, err)
		}
	}
	if err := unix.Connect(fd, sockaddr(p.src)); err != nil {
		t.Fatalf("repair a connection: %v", err)
	}
	return fd
}

// timeWait leaves the server's side of p's flow in TIME_WAIT.
func timeWait(t testing.TB, listener int, p packet) {
	t.Helper()
	client := dial(t, p.src.Port(), p.dst.Port())
	server, _, err := unix.Accept(listener)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(server)
	if n, err := unix.Read(client, make([]byte, 1)); n != 0 || err != nil { // until its FIN is here
		t.Fatalf("read: %d, %v", n, err)
	}
	if err := unix.Shutdown(client, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	eventually(t, "TIME_WAIT", func() bool {
		all, err := netlink.SocketDiagTCP(unix.AF_INET6)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.State == netlink.TCP_TIME_WAIT && s.ID.SourcePort == p.dst.Port() {
				return true
			}
		}
		return false
	})
}

// request sends the SYN of p over the wire, so that the kernel holds a request
// socket for it, and returns the sequence number of the kernel's SYN-ACK. The
// client must not be local; this makes it a neighbour.
func request(t testing.TB, p packet) uint32 {
	t.Helper()
	dev, far := linkIndex(t, device), linkIndex(t, farEnd)
	host := netlink.NewIPNet(p.src.Addr().AsSlice())
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: dev, Dst: host}); err != nil {
		t.Fatal(err)
	}
	err := netlink.NeighSet(&netlink.Neigh{
		LinkIndex: dev, IP: p.src.Addr().AsSlice(), HardwareAddr: routerMAC[:],
		State: netlink.NUD_PERMANENT, Family: unix.AF_INET6,
	})
	if err != nil {
		t.Fatal(err)
	}
	protocol := int(portBits(unix.ETH_P_IPV6))
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
	if _, err := unix.Write(fd, p.frame()); err != nil {
		t.Fatal(err)
	}
	for buffer := make([]byte, 2048); ; {
		n, err := unix.Read(fd, buffer)
		if err != nil {
			t.Fatalf("wait for the SYN-ACK: %v", err)
		}
		if b := buffer[:n]; n >= 74 && b[atNext] == 6 && b[atUpper+13] == syn|ack {
			return binary.BigEndian.Uint32(b[atUpper+4:])
		}
	}
}
