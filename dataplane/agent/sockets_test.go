package agent_test

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// newSocketsRig counts the open connections of the VIP's port.
func newSocketsRig(t *testing.T, seen rig.Hits) *rig.Agent {
	t.Helper()
	return rig.NewAgent(t, seen, rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.Measure = topo.Sockets }))
}

// open waits until the agent counts so many connections, and no others come.
func open(r *rig.Agent, t *testing.T, label string, want uint32) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%s: %d open", label, want), func() bool {
		load, err := r.Load(0)
		return err == nil && load.Open == want
	})
}

// testSockets: connections are counted as the kernel opens and closes them,
// those before the agent's start included, and only its own services'.
func testSockets(t *testing.T, seen rig.Hits) {
	r := newSocketsRig(t, seen)
	l, other := rig.Listen(t, rig.HuntPort, 128), rig.Listen(t, 8080, 128)
	clients := []int{rig.Dial(t, 50000, rig.HuntPort)}
	rig.Queued(t, 1, l)
	if err := r.AttachSockets(); err != nil {
		t.Fatal(err)
	}
	open(r, t, "before the start", 1)
	for i := range 3 {
		clients = append(clients, rig.Dial(t, uint16(50001+i), rig.HuntPort))
		rig.Dial(t, uint16(51001+i), 8080)
	}
	rig.Queued(t, 4, l)
	rig.Queued(t, 3, other)
	open(r, t, "three more", 4)
	p := rig.Inward(rig.HuntPort, wire.SYN)
	if _, why := verdictOn(r, t, &p); why != "pass_on_busy" {
		t.Errorf("4 open: %s", why)
	}
	shut(t, clients[3])
	open(r, t, "one closed", 3)
	if _, why := verdictOn(r, t, &p); why != "accept_avail" {
		t.Errorf("3 open: %s", why)
	}
	for i, c := range clients[:3] {
		shut(t, c)
		open(r, t, "closed", uint32(2-i))
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
	r := newSocketsRig(t, rig.Hits{})
	l := rig.Listen(t, rig.HuntPort, 128)
	if err := r.AttachSockets(); err != nil {
		t.Fatal(err)
	}
	client := rig.Dial(t, 50000, rig.HuntPort)
	server, _, err := unix.Accept(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(server) })
	open(r, t, "connected", 1)
	rig.Reset(t, client)
	open(r, t, "reset by the client", 0)
}

// queued is an agent that counts three connections, which wait at their listener.
func queued(t *testing.T) (r *rig.Agent, listener int) {
	t.Helper()
	r = newSocketsRig(t, rig.Hits{})
	listener = rig.Listen(t, rig.HuntPort, 128)
	if err := r.AttachSockets(); err != nil {
		t.Fatal(err)
	}
	rig.Queue(t, listener, rig.HuntPort, 3)
	open(r, t, "connected", 3)
	return r, listener
}

// TestSocketsAreCountedAgain: a recount makes missed changes good, and leaves right counts alone; a
// connection that it counted is uncounted once.
func TestSocketsAreCountedAgain(t *testing.T) {
	r, l := queued(t)
	var opened int
	missed := rig.Dial(t, 51000, rig.HuntPort)
	open(r, t, "one more", 4)
	err := r.Unwatched(func() {
		rig.Reset(t, missed)
		opened = rig.Dial(t, 51001, rig.HuntPort)
		rig.Dial(t, 51002, rig.HuntPort)
		rig.Queued(t, 6, l) // the kernel keeps one that was reset
	})
	if err != nil {
		t.Fatal(err)
	}
	open(r, t, "one closed and two opened unseen", 4)
	for range 3 {
		if wrong, err := r.Recount(); err != nil || wrong != 0 {
			t.Fatalf("a recount: %v, %d requests were wrong", err, wrong)
		}
		open(r, t, "counted again", 5)
	}
	rig.Reset(t, opened)
	open(r, t, "one of them reset", 4)
	rig.Reset(t, l)
	open(r, t, "listener closed", 0)
	if wrong, err := r.Recount(); err != nil || wrong != 0 {
		t.Fatalf("a recount: %v, %d requests were wrong", err, wrong)
	}
	open(r, t, "counted again", 0)
}

// TestSocketsListenerClosed: sockets that were not accepted go with the listener.
func TestSocketsListenerClosed(t *testing.T) {
	r, l := queued(t)
	rig.Reset(t, l)
	open(r, t, "listener closed", 0)
}

// TestSocketsIPv4: so do those of the other family, whichever kind of socket
// listens.
func TestSocketsIPv4(t *testing.T) {
	rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort)) // for its namespace
	r := rig.LoadAgent(t, rig.Hits{}, rig.AgentConfig(64, rig.Offering(rig.HuntPort, func(o *topo.Offering) {
		o.VIP.Addr, o.Measure = rig.Vip4, topo.Sockets
	})), rig.InVirtualTime)
	l := listen4(t, rig.HuntPort)
	before := dial4(t, 50000)
	rig.Queued(t, 1, l)
	if err := r.AttachSockets(); err != nil {
		t.Fatal(err)
	}
	open(r, t, "before the start", 1)
	dial4(t, 50001)
	open(r, t, "one more", 2)
	shut(t, before)
	open(r, t, "one closed", 1)
	rig.Reset(t, l)
	open(r, t, "listener closed", 0)
	both := listenAt(t, netip.AddrPortFrom(rig.Vip4, rig.HuntPort), 128) // IPv6's socket, mapped address
	dial4(t, 50002)
	rig.Queued(t, 1, both)
	open(r, t, "by way of IPv6", 1)
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
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: rig.Vip4.As4()}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 128); err != nil {
		t.Fatal(err)
	}
	return fd
}

func dial4(t testing.TB, from uint16) int {
	t.Helper()
	fd := rig.Socket(t, netip.AddrPortFrom(rig.Client4, from))
	if err := unix.Connect(fd, rig.Sockaddr(netip.AddrPortFrom(rig.Vip4, rig.HuntPort))); err != nil {
		t.Fatalf("connect: %v", err)
	}
	return fd
}
