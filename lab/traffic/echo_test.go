package traffic

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/lab/traffic/responder"
)

func newEcho(t testing.TB, name string, l net.Listener) *responder.Echo {
	t.Helper()
	e := responder.NewEcho(name)
	served := make(chan error, 1)
	go func() { served <- e.Serve(l) }()
	t.Cleanup(func() {
		_ = e.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return e
}

func openFlows(t testing.TB, d Dial) *Flows {
	t.Helper()
	f, err := OpenFlows(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// outcomes counts the answers.
func outcomes(answers []Answer) map[Outcome]int {
	counts := map[Outcome]int{}
	for _, a := range answers {
		counts[a.Outcome]++
	}
	return counts
}

func assertOutcomes(t testing.TB, answers []Answer, want map[Outcome]int) {
	t.Helper()
	got := outcomes(answers)
	if maps.Equal(got, want) {
		return
	}
	for _, a := range answers {
		if want[a.Outcome] == 0 {
			t.Errorf("got %v, want %v; one answer: %+v", got, want, a)
			return
		}
	}
	t.Errorf("got %v, want %v", got, want)
}

// A thousand connections to two servers of one address: each is served once, by
// the server that its answers name, however often it speaks.
func TestAThousandFlowsKeepTheirServers(t *testing.T) {
	const n = 1000
	for _, addr := range []string{vip, vip4} {
		t.Run(addr, func(t *testing.T) {
			client, server := linked(t)
			echoes := map[string]*responder.Echo{}
			for _, name := range []string{"s1", "s2"} {
				echoes[name] = newEcho(t, name, server.listen(addr))
			}
			flows := openFlows(t, Dial{To: netip.MustParseAddrPort(addr), From: from(addr, n), Enter: client.enter})
			var holders []string
			for range 3 {
				began := time.Now()
				answers := flows.Exchange(t.Context(), 10*time.Second)
				t.Logf("an exchange of %d flows took %v", n, time.Since(began))
				assertOutcomes(t, answers, map[Outcome]int{OK: n})
				if holders != nil && !slices.Equal(holders, flows.Servers()) {
					t.Fatal("a flow has changed its server")
				}
				holders = flows.Servers()
				assertHeld(t, answers, holders, from(addr, n))
			}
			assertBooks(t, echoes, holders, from(addr, n))
		})
	}
}

func assertHeld(t *testing.T, answers []Answer, holders []string, ends []netip.AddrPort) {
	t.Helper()
	for i, a := range answers {
		if want := (Answer{From: ends[i], Server: holders[i], Outcome: OK}); a != want {
			t.Fatalf("flow %d: got %+v, want %+v", i, a, want)
		}
	}
}

func assertBooks(t *testing.T, echoes map[string]*responder.Echo, holders []string, ends []netip.AddrPort) {
	t.Helper()
	booked := 0
	for _, e := range echoes {
		if booked += len(e.Opened()); len(e.Opened()) == 0 || len(e.Accepted()) != len(e.Opened()) {
			t.Errorf("%s: %d ids, %d clients, want some and of each the same", e.Name, len(e.Opened()), len(e.Accepted()))
		}
	}
	for i, end := range ends {
		e := echoes[holders[i]]
		if e.Opened()[end.String()] != 1 || e.Accepted()[end] != 1 {
			t.Fatalf("%s is not booked once at %s", end, holders[i])
		}
	}
	if booked != len(ends) {
		t.Errorf("%d connections booked, want %d", booked, len(ends))
	}
}

func TestEchoCountsEveryConnectionOfAnID(t *testing.T) {
	l, err := responder.Listen(netip.MustParseAddrPort("127.0.0.1:0"), 8)
	if err != nil {
		t.Fatal(err)
	}
	echo := newEcho(t, "s1", l)
	say := func(text, want string) {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = conn.Write([]byte(text))
		got := make([]byte, len(want))
		if _, err := conn.Read(got); err != nil || string(got) != want {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	say("a 1\na 2\n", "s1 a 1\ns1 a 2\n"[:7])
	say("a 3\n", "s1 a 3\n")
	say("b 1\n", "s1 b 1\n")
	if want := map[string]int{"a": 2, "b": 1}; !maps.Equal(echo.Opened(), want) {
		t.Errorf("opened %v, want %v", echo.Opened(), want)
	}
}

// A connection that sends nothing is booked by its address, stays open, and
// neither end probes it.
func TestIdleMeansSilent(t *testing.T) {
	accepted := make(chan net.Conn, 1)
	l, err := responder.Listen(netip.MustParseAddrPort("[::1]:0"), 8)
	if err != nil {
		t.Fatal(err)
	}
	echo := newEcho(t, "s1", spy{l, accepted})
	flows := openFlows(t, Dial{To: netip.MustParseAddrPort(l.Addr().String()), From: make([]netip.AddrPort, 1)})
	far := <-accepted
	assertOutcomes(t, flows.Exchange(t.Context(), 10*time.Second), map[Outcome]int{OK: 1})
	if len(echo.Accepted()) != 1 || echo.Accepted()[responder.ClientOf(far)] != 1 {
		t.Errorf("accepted %v, want %v once", echo.Accepted(), far.RemoteAddr())
	}
	for _, conn := range []net.Conn{far, flows.flows[0].conn} {
		if probes(t, conn) {
			t.Errorf("%s → %s: the kernel probes the connection", conn.LocalAddr(), conn.RemoteAddr())
		}
	}
}

// spy shows what is accepted.
type spy struct {
	net.Listener
	accepted chan<- net.Conn
}

func (s spy) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err == nil {
		s.accepted <- conn
	}
	return conn, err
}

func probes(t *testing.T, conn net.Conn) bool {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	on := 0
	if err := raw.Control(func(fd uintptr) { on, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE) }); err != nil {
		t.Fatal(err)
	}
	return on != 0
}

func TestACloseEndsFlowsForGood(t *testing.T) {
	l, err := responder.Listen(netip.MustParseAddrPort("127.0.0.1:0"), 8)
	if err != nil {
		t.Fatal(err)
	}
	echo := newEcho(t, "s1", l)
	flows := openFlows(t, Dial{To: netip.MustParseAddrPort(l.Addr().String()), From: make([]netip.AddrPort, 5)})
	assertOutcomes(t, flows.Exchange(t.Context(), 10*time.Second), map[Outcome]int{OK: 5})
	_ = echo.Close()
	for range 2 {
		answers := flows.Exchange(t.Context(), 10*time.Second)
		assertOutcomes(t, answers, map[Outcome]int{Closed: 5})
		if answers[0].Server != "" || flows.Servers()[0] != "s1" {
			t.Errorf("answered by %q, held by %q, want no server and s1", answers[0].Server, flows.Servers()[0])
		}
	}
	if err := echo.Serve(l); err != nil {
		t.Errorf("serve after close: %v", err)
	}
}

func TestEchoSaysWhyItCannotServe(t *testing.T) {
	l, err := responder.Listen(netip.MustParseAddrPort("127.0.0.1:0"), 8)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := responder.NewEcho("s1").Serve(l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want that the listener is closed", err)
	}
}

func TestFlowsOpenAtTheirRate(t *testing.T) {
	l, err := responder.Listen(netip.MustParseAddrPort("127.0.0.1:0"), 8)
	if err != nil {
		t.Fatal(err)
	}
	newEcho(t, "s1", l)
	began := time.Now()
	flows := openFlows(t, Dial{To: netip.MustParseAddrPort(l.Addr().String()), From: make([]netip.AddrPort, 21), Rate: 100})
	if took := time.Since(began); took < 200*ms {
		t.Errorf("21 flows at 100/s opened within %v", took)
	}
	assertOutcomes(t, flows.Exchange(t.Context(), 10*time.Second), map[Outcome]int{OK: 21})
	ctx, cancel := context.WithTimeout(t.Context(), 20*ms)
	defer cancel()
	_, err = OpenFlows(ctx, Dial{To: netip.MustParseAddrPort(l.Addr().String()), From: make([]netip.AddrPort, 21), Rate: 0.001})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func TestFlowsThatCannotOpen(t *testing.T) {
	deaf := netip.MustParseAddrPort("[::1]:1")
	foreign := netip.MustParseAddrPort("[2001:db8::1]:5000")
	flows := openFlows(t, Dial{To: deaf, From: []netip.AddrPort{{}, foreign}})
	answers := flows.Exchange(t.Context(), 10*time.Second)
	if answers[0].Outcome != Refused || answers[1].Outcome != Failed || answers[1].From != foreign || answers[1].Cause == "" {
		t.Errorf("got %+v, want refused, and failed with its address and cause", answers)
	}
	no := errors.New("no such namespace")
	if _, err := OpenFlows(t.Context(), Dial{To: deaf, From: from(vip, 1), Enter: func() error { return no }}); !errors.Is(err, no) {
		t.Errorf("got %v, want the error of Enter", err)
	}
}
