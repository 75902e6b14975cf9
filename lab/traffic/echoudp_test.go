package traffic

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/lab/traffic/responder"
)

func (s *space) listenUDP(addr string) (conn *net.UDPConn) {
	s.t.Helper()
	s.do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
		return err
	})
	return conn
}

func newEchoUDP(t testing.TB, name string, conns ...*net.UDPConn) *responder.EchoUDP {
	t.Helper()
	e := responder.NewEchoUDP(name)
	served := make(chan error, len(conns))
	for _, c := range conns {
		go func() { served <- e.Serve(c) }()
	}
	t.Cleanup(func() {
		_ = e.Close()
		for range conns {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
	})
	return e
}

func openDatagrams(t testing.TB, d Dial) *Flows {
	t.Helper()
	f, err := OpenDatagrams(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// The server answers from the address that was asked, not from the one that its
// kernel would choose: our sockets receive nothing else.
func TestDatagramsAreAnsweredFromTheServicesAddress(t *testing.T) {
	const n = 1000
	for _, c := range []struct{ listen, to string }{
		{vip, vip}, {vip4, vip4},
		{"[::]:7", vip}, {"[::]:7", "[2001:db8:f::2]:7"}, {"[::]:7", vip4}, {"0.0.0.0:7", vip4},
	} {
		t.Run(c.to+" at "+c.listen, func(t *testing.T) {
			client, server := linked(t)
			echo := newEchoUDP(t, "s1", server.listenUDP(c.listen))
			to := netip.MustParseAddrPort(c.to)
			flows := openDatagrams(t, Dial{To: to, From: from(c.to, n), Enter: client.enter})
			for range 2 {
				began := time.Now()
				answers := flows.Exchange(t.Context(), 10*time.Second)
				t.Logf("an exchange of %d flows took %v", n, time.Since(began))
				assertOutcomes(t, answers, map[Outcome]int{OK: n})
			}
			assertHeard(t, echo.Received(), to.Addr(), from(c.to, n))
			if flows.Servers()[n-1] != "s1" {
				t.Errorf("held by %q, want s1", flows.Servers()[n-1])
			}
		})
	}
}

func assertHeard(t *testing.T, heard []responder.Datagram, to netip.Addr, ends []netip.AddrPort) {
	t.Helper()
	if len(heard) != 2*len(ends) {
		t.Fatalf("%d datagrams, want %d", len(heard), 2*len(ends))
	}
	for _, round := range []struct {
		text  string
		heard []responder.Datagram
	}{{"1", heard[:len(ends)]}, {"2", heard[len(ends):]}} {
		for _, end := range ends {
			want := responder.Datagram{From: end, To: to, ID: end.String(), Text: round.text}
			if !slices.Contains(round.heard, want) {
				t.Fatalf("%+v did not arrive", want)
			}
		}
	}
}

func TestHowDatagramsFail(t *testing.T) {
	deaf := netip.MustParseAddrPort("127.0.0.1:1")
	flows := openDatagrams(t, Dial{To: deaf, From: make([]netip.AddrPort, 2)})
	assertOutcomes(t, flows.Exchange(t.Context(), 10*time.Second), map[Outcome]int{Refused: 2})

	mute, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	flows = openDatagrams(t, Dial{To: mute.LocalAddr().(*net.UDPAddr).AddrPort(), From: make([]netip.AddrPort, 2)})
	assertOutcomes(t, flows.Exchange(t.Context(), 50*ms), map[Outcome]int{Silent: 2})
	newEchoUDP(t, "late", mute) // answers what has come already, too
	answers := flows.Exchange(t.Context(), 10*time.Second)
	assertOutcomes(t, answers, map[Outcome]int{OK: 2})

	foreign := netip.MustParseAddrPort("192.0.2.1:5000")
	flows = openDatagrams(t, Dial{To: deaf, From: []netip.AddrPort{foreign}})
	if got := flows.Exchange(t.Context(), 10*time.Second)[0]; got.Outcome != Failed || got.From != foreign {
		t.Errorf("got %+v, want a failure of %s", got, foreign)
	}
	if err := responder.NewEchoUDP("s").Serve(closedUDP(t)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want that the socket is closed", err)
	}
}

func closedUDP(t *testing.T) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	return conn
}
