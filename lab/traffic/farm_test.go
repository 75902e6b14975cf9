package traffic

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/lab/trace"
)

// farm is some servers in this process behind one loopback address.
type farm struct {
	addr    netip.AddrPort
	servers []*Server
}

func newFarm(t testing.TB, servers int, m Machine) *farm {
	t.Helper()
	clock, err := NewClock()
	if err != nil {
		t.Fatal(err)
	}
	f := &farm{addr: netip.MustParseAddrPort("[::1]:0")}
	for i := range servers {
		l := listenTogether(t, f.addr)
		f.addr = l.Addr().(*net.TCPAddr).AddrPort()
		server := NewServer("s"+strconv.Itoa(i), m, clock)
		f.servers = append(f.servers, server)
		go func() { _ = server.Serve(l) }()
	}
	t.Cleanup(func() {
		for _, s := range f.servers {
			_ = s.Close()
		}
		_ = clock.Close()
	})
	return f
}

// listenTogether opens one of several listeners on an address: the kernel deals
// connections to them by a hash of their ports.
func listenTogether(t testing.TB, addr netip.AddrPort) net.Listener {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		_ = raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		})
		return err
	}}
	l, err := config.Listen(context.Background(), "tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// requestsOf gives every arrival a port of its own.
func requestsOf(arrivals []trace.Arrival) []Request {
	requests := make([]Request, len(arrivals))
	for i, a := range arrivals {
		from := netip.AddrPortFrom(netip.IPv6Loopback(), uint16(1024+i%30_000))
		requests[i] = Request{At: a.At, Service: a.Service, From: from}
	}
	return requests
}

func (f *farm) run(t testing.TB, arrivals []trace.Arrival) Result {
	t.Helper()
	result, err := Client{To: f.addr}.Run(context.Background(), requestsOf(arrivals))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func meanOf(rows []Row, of func(Row) time.Duration) time.Duration {
	var sum time.Duration
	for _, r := range rows {
		sum += of(r)
	}
	return sum / time.Duration(len(rows))
}
