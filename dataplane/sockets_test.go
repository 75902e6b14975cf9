package dataplane

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/topo"
)

// newSocketsRig counts the open connections of the VIP's port.
func newSocketsRig(t *testing.T, seen hits) *agentRig {
	t.Helper()
	return newAgentRig(t, seen, offering(huntPort, func(o *topo.Offering) { o.Measure = topo.Sockets }))
}

// open waits until the agent counts so many connections, and no others come.
func (r *agentRig) open(t *testing.T, what string, want uint32) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s: %d open", what, want), func() bool {
		load, err := r.Load(0)
		return err == nil && load.Open == want
	})
}

// testSockets: connections are counted as the kernel opens and closes them,
// those before the agent's start included, and only its own services'.
func testSockets(t *testing.T, seen hits) {
	r := newSocketsRig(t, seen)
	l, other := listen(t, huntPort, 128), listen(t, 8080, 128)
	clients := []int{dial(t, 50000, huntPort)}
	queued(t, 1, l)
	if err := r.attachSockets(); err != nil {
		t.Fatal(err)
	}
	r.open(t, "before the start", 1)
	for i := range 3 {
		clients = append(clients, dial(t, uint16(50001+i), huntPort))
		dial(t, uint16(51001+i), 8080)
	}
	queued(t, 4, l)
	queued(t, 3, other)
	r.open(t, "three more", 4)
	p := inward(huntPort, syn)
	if _, why := r.verdictOn(t, &p); why != "pass_on_busy" {
		t.Errorf("4 open: %s", why)
	}
	shut(t, clients[3])
	r.open(t, "one closed", 3)
	if _, why := r.verdictOn(t, &p); why != "accept_avail" {
		t.Errorf("3 open: %s", why)
	}
	for i, c := range clients[:3] {
		shut(t, c)
		r.open(t, "closed", uint32(2-i))
	}
}

// shut sends a FIN: the server's side leaves ESTABLISHED.
func shut(t *testing.T, fd int) {
	t.Helper()
	if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
}

// TestSocketsReset: a connection that the client resets is not open any more.
func TestSocketsReset(t *testing.T) {
	r := newSocketsRig(t, hits{})
	l := listen(t, huntPort, 128)
	if err := r.attachSockets(); err != nil {
		t.Fatal(err)
	}
	client := dial(t, 50000, huntPort)
	server, _, err := unix.Accept(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(server) })
	r.open(t, "connected", 1)
	reset(t, client)
	r.open(t, "reset by the client", 0)
}

// reset ends a connection with a RST, and leaves the descriptor to its owner.
func reset(t testing.TB, fd int) {
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

// TestSocketsListenerClosed: those that nobody accepted go with the listener.
func TestSocketsListenerClosed(t *testing.T) {
	r := newSocketsRig(t, hits{})
	l := listen(t, huntPort, 128)
	if err := r.attachSockets(); err != nil {
		t.Fatal(err)
	}
	queue(t, l, huntPort, 3)
	r.open(t, "connected", 3)
	reset(t, l)
	r.open(t, "listener closed", 0)
}

// TestSocketsIPv4: so do those of the other family, whichever kind of socket
// listens.
func TestSocketsIPv4(t *testing.T) {
	newAgentRig(t, hits{}, offering(huntPort)) // for its namespace
	r := loadAgentRig(t, hits{}, agentConfig(64, offering(huntPort, func(o *topo.Offering) {
		o.VIP.Addr, o.Measure = vip4, topo.Sockets
	})), inVirtualTime)
	l := listen4(t, huntPort)
	before := dial4(t, 50000)
	queued(t, 1, l)
	if err := r.attachSockets(); err != nil {
		t.Fatal(err)
	}
	r.open(t, "before the start", 1)
	dial4(t, 50001)
	r.open(t, "one more", 2)
	shut(t, before)
	r.open(t, "one closed", 1)
	reset(t, l)
	r.open(t, "listener closed", 0)
	both := listenAt(t, netip.AddrPortFrom(vip4, huntPort), 128) // IPv6's socket, mapped address
	dial4(t, 50002)
	queued(t, 1, both)
	r.open(t, "by way of IPv6", 1)
}

// listen4 opens the port of the IPv4 VIP by a socket of that family.
func listen4(t testing.TB, port int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: vip4.As4()}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 128); err != nil {
		t.Fatal(err)
	}
	return fd
}

func dial4(t testing.TB, from uint16) int {
	t.Helper()
	fd := socket(t, netip.AddrPortFrom(client4, from))
	if err := unix.Connect(fd, sockaddr(netip.AddrPortFrom(vip4, huntPort))); err != nil {
		t.Fatalf("connect: %v", err)
	}
	return fd
}
