package agent_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/proof/rig"
	"proffer/wire"
)

// Clients that lie: they move the load work by the work that they cause.

// TestWorkOutsideWindow: segments that the connection's socket does not take, as they are ahead
// of its data, behind it or far away, are no unread data, though the server reads nothing; the
// next byte in order is.
func TestWorkOutsideWindow(t *testing.T) {
	r := newWorkRig(t)
	cmd, _ := serveSlowly(t, workPort)
	fd := clients(t, 1, 21000, "")[0]
	settles(r, t, "a connection", 0, 0)
	if err := unix.Kill(cmd.Process.Pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	raw, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(raw)
	next := sendsNext(t, fd)
	for label, seq := range map[string]uint32{"ahead by one": next + 1, "behind": next - 3, "1 GB ahead": next + 1e9, "1 GB behind": next - 1e9} {
		for _, flags := range []uint8{wire.ACK | wire.PSH, wire.PSH, wire.ACK | wire.FIN} {
			s := wire.TCP{From: 21000, To: workPort, Seq: seq, Flags: flags}
			p := wire.IP{Source: rig.ClientAddr, Destination: rig.VipAddr, HopLimit: wire.DefaultHopLimit}.TCP(s, []byte("abc"))
			if err := unix.Sendto(raw, p, 0, rig.Sockaddr(netip.AddrPortFrom(rig.VipAddr, 0))); err != nil {
				t.Fatal(err)
			}
		}
		settles(r, t, label, 0, 0)
	}
	send(t, fd, request)
	settles(r, t, "a request", 1, 1)
}

// sendsNext is the sequence number that a connection sends next.
func sendsNext(t *testing.T, fd int) uint32 {
	t.Helper()
	const offWithoutProbe, sendQueue = -1, 2 // linux/tcp.h
	set := func(option, value int) {
		t.Helper()
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, option, value); err != nil {
			t.Fatal(err)
		}
	}
	set(unix.TCP_REPAIR, 1)
	set(unix.TCP_REPAIR_QUEUE, sendQueue)
	seq, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
	if err != nil {
		t.Fatal(err)
	}
	set(unix.TCP_REPAIR, offWithoutProbe)
	return uint32(seq)
}

// TestWorkHalfRequests: halves of requests, that come at once or byte by byte, are work while
// they are read alone; a server with a process or thread a connection has no more of it.
func TestWorkHalfRequests(t *testing.T) {
	for name, start := range map[string]func(){
		"nginx": func() {
			nginx(t, workPort, fmt.Sprintf(`server { listen %s; location / { return 200 "ok"; } }`, at(workPort)))
		},
		"threads": func() {
			serve(t, workPort, "python3", "-c", obedient, rig.VipAddr.String(), fmt.Sprint(workPort), os.DevNull)
		},
	} {
		r := newWorkRig(t)
		start()
		settles(r, t, name+", no client", 0, 0)
		fds := clients(t, 200, 20000, "GET / HT")
		settles(r, t, name+", 200 halves", 0, 0)
		for _, b := range "TP/1.1" {
			for _, fd := range fds {
				send(t, fd, string(b))
			}
		}
		settles(r, t, name+", trickled", 0, 0)
	}
}

// TestWorkIdleTLS: idle connections of TLS 1.3, without a handshake, with half of one and with a
// whole one, are no work.
func TestWorkIdleTLS(t *testing.T) {
	r := newWorkRig(t)
	cert, key := certify(t)
	nginx(t, workPort, fmt.Sprintf(`server { listen %s ssl; ssl_protocols TLSv1.3; ssl_certificate %s; ssl_certificate_key %s; }`, at(workPort), cert, key))
	clients(t, 300, 20000, "")
	clients(t, 300, 21000, "\x16\x03\x01\x02\x00\x01\x00")
	for _, fd := range clients(t, 300, 22000, "") {
		f := os.NewFile(uintptr(fd), "")
		conn, err := net.FileConn(f) // its own descriptor
		if err != nil {
			t.Fatal(err)
		}
		secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		t.Cleanup(func() { conn.Close() })
		if err := secure.Handshake(); err != nil {
			t.Fatal(err)
		}
	}
	settles(r, t, "900 idle connections", 0, 0)
}
