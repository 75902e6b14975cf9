package traffic

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/lab/trace"
	"proffer/lab/traffic/responder"
)

// Real connections over loopback, three seconds of them: every request is
// answered once, by the server that its row names, and takes at least what an
// idle machine would. How close the times come to the replay is logged only.
func TestEveryRequestIsAnsweredOnce(t *testing.T) {
	const seed = 7
	m := responder.Machine{Cores: 2, Workers: 32}
	arrivals := trace.Poisson(seed, 900, 300, 20*ms)
	f := newFarm(t, 4, m)
	result := f.run(t, arrivals)
	if len(result.Rows) != len(arrivals) {
		t.Fatalf("%d rows of %d requests (seed %d)", len(result.Rows), len(arrivals), seed)
	}
	for i, row := range result.Rows {
		want := Row{ID: i, Intended: arrivals[i].At, Service: arrivals[i].Service, Outcome: OK}
		got := Row{ID: row.ID, Intended: row.Intended, Service: row.Service, Outcome: row.Outcome, Cause: row.Cause}
		if got != want {
			t.Fatalf("row %d (seed %d): got %+v, want %+v", i, seed, got, want)
		}
		ordered := []time.Duration{row.Intended, row.Started, row.Connected, row.Connected + row.Service, row.Done}
		if !slices.IsSorted(ordered) {
			t.Fatalf("row %d (seed %d): not in this order in time: %v", i, seed, ordered)
		}
	}
	assertServedOnce(t, f, result.Rows)
	t.Logf("measured/replay %.3f, schedule %+v", Fidelity(result.Rows, Alike(m)), result.Schedule)
}

func assertServedOnce(t *testing.T, f *farm, rows []Row) {
	t.Helper()
	servers := map[string]string{}
	for _, s := range f.servers {
		for _, id := range s.Served() {
			if other, twice := servers[id]; twice {
				t.Errorf("request %s was answered by %s and %s", id, other, s.Name)
			}
			servers[id] = s.Name
		}
		if s.Busy() != 0 {
			t.Errorf("%s has %d requests in hand after the run", s.Name, s.Busy())
		}
	}
	for _, r := range rows {
		if by := servers[strconv.Itoa(r.ID)]; by != r.Server {
			t.Errorf("request %d: answered by %q, its row says %q", r.ID, by, r.Server)
		}
	}
	if len(servers) != len(rows) {
		t.Errorf("%d requests answered, %d rows", len(servers), len(rows))
	}
}

// Two workers take two connections; the third waits in the kernel, where the
// agent sees it, although its client believes itself connected.
func TestWorkersTakeNoMoreThanTheyCan(t *testing.T) {
	f := newFarm(t, 1, responder.Machine{Cores: 1, Workers: 2})
	requests := []Request{{Service: time.Hour}, {Service: time.Hour}, {Service: time.Hour}}
	result, err := Client{To: f.addr, Timeout: 1500 * ms}.Run(context.Background(), requests)
	if err != nil || Count(result.Rows, TimedOut) != 3 || result.Rows[2].Connected == 0 {
		t.Fatalf("got %+v, %v, want three that connect and time out", result.Rows, err)
	}
	if busy := f.servers[0].Busy(); busy != 2 {
		t.Errorf("%d requests in hand, want 2", busy)
	}
}

// behave starts a server of one connection with the given behaviour.
func behave(t *testing.T, with func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := responder.Listen(netip.MustParseAddrPort("127.0.0.1:0"), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	go func() {
		if conn, err := l.Accept(); err == nil {
			with(conn)
			<-ended
			_ = conn.Close() // not before: the collector closes unreferenced files
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func answering(text string, then func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1000))
		_, _ = conn.Write([]byte(text))
		then(conn)
	}
}

func hangUp(conn net.Conn) { _ = conn.Close() }
func stay(net.Conn)        {}
func resetNow(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

func TestOutcomes(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nX-Proffer-Server: s\r\nContent-Length: 2\r\nX-Proffer-Id: "
	for _, c := range []struct {
		name string
		with func(net.Conn)
		want Outcome
	}{
		{"answer", answering(head+"0\r\n\r\nhi", hangUp), OK},
		{"reset at once", resetNow, Reset},
		{"reset after the request", answering("", resetNow), Reset},
		{"reset in place of the close", answering(head+"0\r\n\r\nhi", resetNow), Reset},
		{"no answer", answering("", stay), TimedOut},
		{"no close", answering(head+"0\r\n\r\nhi", stay), TimedOut},
		{"hangs up", answering("", hangUp), Failed},
		{"answer cut short", answering(head+"0\r\n\r\nh", hangUp), Failed},
		{"answer with a tail", answering(head+"0\r\n\r\nhi!", hangUp), Failed},
		{"another's answer", answering(head+"1\r\n\r\nhi", hangUp), Failed},
		{"refusal by the application", answering("HTTP/1.1 503 Busy\r\nX-Proffer-Id: 0\r\n\r\n", hangUp), Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := Client{To: behave(t, c.with)}
			if c.want == TimedOut {
				client.Timeout = 200 * ms
			}
			result, err := client.Run(context.Background(), []Request{{Service: ms}})
			if err != nil || len(result.Rows) != 1 {
				t.Fatalf("got %+v, %v, want one row", result, err)
			}
			row := result.Rows[0]
			if row.Outcome != c.want || (row.Cause == "") != (c.want == OK) {
				t.Errorf("got %q (%s), want %q", row.Outcome, row.Cause, c.want)
			}
		})
	}
}

func TestNoListenerIsRefused(t *testing.T) {
	client := Client{To: netip.MustParseAddrPort("[::1]:1")}
	result, err := client.Run(context.Background(), []Request{{}, {At: ms}})
	if err != nil || Count(result.Rows, Refused) != 2 {
		t.Errorf("got %+v, %v, want two refusals", result.Rows, err)
	}
}

func TestAForeignAddressIsAnError(t *testing.T) {
	client := Client{To: netip.MustParseAddrPort("[::1]:1")}
	from := netip.MustParseAddrPort("[2001:db8::1]:5000")
	result, err := client.Run(context.Background(), []Request{{From: from}})
	if err != nil || Count(result.Rows, Failed) != 1 {
		t.Errorf("got %+v, %v, want one error", result.Rows, err)
	}
}

// A full accept queue drops the SYN silently: the client sends it again and the
// kernel counts it, the only traces there are.
func TestAFullQueueIsCounted(t *testing.T) {
	before, err := responder.ReadDrops(responder.NetstatPath)
	if err != nil {
		t.Fatal(err)
	}
	l, err := responder.Listen(netip.MustParseAddrPort("[::1]:0"), 1) // no process accepts: holds 2
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client := Client{To: l.Addr().(*net.TCPAddr).AddrPort(), Timeout: 1500 * ms}
	result, err := client.Run(context.Background(), make([]Request, 5))
	if err != nil || Count(result.Rows, TimedOut) != 5 {
		t.Fatalf("got %+v, %v, want five timeouts", result.Rows, err)
	}
	connected := 0
	for _, r := range result.Rows {
		if r.Connected > 0 {
			connected++
		}
	}
	after, err := responder.ReadDrops(responder.NetstatPath)
	if err != nil {
		t.Fatal(err)
	}
	drops := after.Since(before)
	if connected != 2 || drops.ListenDrops < 3 || drops.ListenOverflows < 3 || drops.SYNRetransmits < 3 {
		t.Errorf("%d of 5 connected, %+v, want 2 and at least 3 of each", connected, drops)
	}
}

func TestCancelEndsARunAtOnce(t *testing.T) {
	f := newFarm(t, 1, responder.Machine{Cores: 2, Workers: 32})
	ctx, cancel := context.WithCancel(context.Background())
	requests := []Request{{}, {At: ms, Service: time.Hour}, {At: time.Hour}}
	client := Client{To: f.addr, Timeout: 2 * time.Hour, Progress: func(done, total int) {
		if done == 1 && total == 3 {
			cancel()
		}
	}}
	result, err := client.Run(ctx, requests)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want the context's", err)
	}
	if len(result.Rows) != 1 || result.Rows[0].ID != 0 {
		t.Errorf("got %+v, want the one row that was complete", result.Rows)
	}
}

// TestClientGivesUp: a run whose requests all leave late ends after as many as it was to send at
// least, with their rows; without such a number it sends them all.
func TestClientGivesUp(t *testing.T) {
	f := newFarm(t, 1, responder.Machine{Cores: 2, Workers: 32})
	requests := make([]Request, 300)
	for i := range requests {
		requests[i].At = -time.Minute
	}
	for quit, want := range map[int]int{0: 300, 1: 1, 100: 100, 299: 299, 400: 300} {
		client := Client{To: f.addr, Quit: quit, Timeout: 2 * time.Minute}
		result, err := client.Run(t.Context(), requests)
		if err != nil || len(result.Rows) != want || !errors.Is(result.Schedule.Kept(), ErrLate) {
			t.Errorf("quit %d: %d rows, want %d; %v, %v", quit, len(result.Rows), want, result.Schedule.Kept(), err)
		}
	}
}

// The sender is in a namespace of its own, where nothing is up; it is alone.
func TestEnterMovesTheSenderAlone(t *testing.T) {
	f := newFarm(t, 1, responder.Machine{Cores: 1, Workers: 1})
	inside := Client{To: f.addr, Enter: func() error { return unix.Unshare(unix.CLONE_NEWNET) }}
	outside := Client{To: f.addr}
	for _, c := range []struct {
		client Client
		want   Outcome
	}{{outside, OK}, {inside, Failed}, {outside, OK}} {
		result, err := c.client.Run(context.Background(), make([]Request, 3))
		if err != nil || Count(result.Rows, c.want) != 3 {
			t.Fatalf("got %+v, %v, want three of %q", result.Rows, err, c.want)
		}
	}
}

func TestARunThatCannotEnterSendsNothing(t *testing.T) {
	no := errors.New("no such namespace")
	client := Client{To: netip.MustParseAddrPort("[::1]:1"), Enter: func() error { return no }}
	result, err := client.Run(context.Background(), make([]Request, 1))
	if !errors.Is(err, no) || len(result.Rows) != 0 {
		t.Errorf("got %+v, %v, want no row and the error of Enter", result, err)
	}
}

// farm is some servers in this process behind one loopback address.
type farm struct {
	addr    netip.AddrPort
	servers []*responder.Server
}

func newFarm(t testing.TB, servers int, m responder.Machine) *farm {
	t.Helper()
	clock, err := responder.NewClock()
	if err != nil {
		t.Fatal(err)
	}
	f := &farm{addr: netip.MustParseAddrPort("[::1]:0")}
	for i := range servers {
		l := listenTogether(t, f.addr)
		f.addr = l.Addr().(*net.TCPAddr).AddrPort()
		server := responder.NewServer("s"+strconv.Itoa(i), m, clock)
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
