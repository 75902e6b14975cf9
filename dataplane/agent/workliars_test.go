package agent_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
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

// TestWorkIdleTLS: 10,000 idle connections of TLS 1.3 are no work, nor are some without a handshake
// and with half of one.
func TestWorkIdleTLS(t *testing.T) {
	r := newWorkRig(t)
	cert, key := certify(t)
	nginx(t, workPort, fmt.Sprintf(`server { listen %s ssl; ssl_protocols TLSv1.3; ssl_certificate %s; ssl_certificate_key %s; }`, at(workPort), cert, key))
	const whole, more = 10000, 300
	allowDescriptors(t, 2*whole)
	clients(t, more, 20000, "")
	clients(t, more, 21000, "\x16\x03\x01\x02\x00\x01\x00")
	var group errgroup.Group
	group.SetLimit(16)
	for _, fd := range clients(t, whole, 22000, "") {
		group.Go(func() error { return tls.Client(blocking(fd), &tls.Config{InsecureSkipVerify: true}).Handshake() })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	settles(r, t, "10,600 idle connections", 0, 0)
}

// allowDescriptors lets this process have so many open.
func allowDescriptors(t *testing.T, n uint64) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur, limit.Max = max(limit.Cur, n), max(limit.Max, n)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
}

// blocking is a connection by its descriptor, without another.
type blocking int

func (b blocking) Read(p []byte) (int, error) {
	n, err := unix.Read(int(b), p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

func (b blocking) Write(p []byte) (int, error)    { return unix.Write(int(b), p) }
func (blocking) Close() error                     { return nil }
func (blocking) LocalAddr() net.Addr              { return nil }
func (blocking) RemoteAddr() net.Addr             { return nil }
func (blocking) SetDeadline(time.Time) error      { return nil }
func (blocking) SetReadDeadline(time.Time) error  { return nil }
func (blocking) SetWriteDeadline(time.Time) error { return nil }
