package wire

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// withSocketOptions are ways in which an application asks its kernel for options in its packets.
var withSocketOptions = map[string]struct {
	six          bool
	level, which int
	value        string
}{
	"hop-by-hop":   {true, unix.IPPROTO_IPV6, unix.IPV6_HOPOPTS, "\x00\x00\x01\x04\x00\x00\x00\x00"},
	"destination":  {true, unix.IPPROTO_IPV6, unix.IPV6_DSTOPTS, "\x00\x01\x1e\x0c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"},
	"no operation": {false, unix.IPPROTO_IP, unix.IP_OPTIONS, "\x01\x01\x01\x00"},
	"record route": {false, unix.IPPROTO_IP, unix.IP_OPTIONS, "\x07\x0b\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00"},
}

// TestOptionsOfSockets: applications that have their kernel put options into every packet of a connection or a flow are
// served, in each mode, with and without agents: requests longer than a segment, and datagrams of one flow by one server.
func TestOptionsOfSockets(t *testing.T) {
	for _, c := range []struct {
		spelt    string
		noAgents bool
	}{
		{"hunt:static:4", false}, {"single", false}, {"single", true}, {"learned", false}, {"learned", true}, {"stateless", false}, {"stateless", true}, {"ecmp", false}, {"ecmp", true}} {
		t.Run(fmt.Sprintf("%s, no agents %v", c.spelt, c.noAgents), func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 2})
			kit.ServeAt(t, bed.VIP, bed.Servers...)
			kit.ServeAt(t, bed.VIP4, bed.Servers...)
			echoUDP(t, bed)
			s := kit.Settings(t, c.spelt)
			s.NoAgents = c.noAgents
			farm := kit.Start(t, bed, kit.Everywhere(bed, s))
			for name, o := range withSocketOptions {
				if c.noAgents && (!o.six || name == "hop-by-hop") { // Linux's End.DT6 refuses those inside
					continue
				}
				dialer := net.Dialer{Timeout: 20 * time.Second, Control: func(_, _ string, raw syscall.RawConn) (err error) {
					outer := raw.Control(func(fd uintptr) { err = unix.SetsockoptString(int(fd), o.level, o.which, o.value) })
					if outer != nil {
						return outer
					}
					return err
				}}
				vip := bed.VIP4
				if o.six {
					vip = bed.VIP
				}
				at := netip.AddrPortFrom(vip, testbed.Port).String()
				for range 4 {
					if err := requestBytes(t, bed, &dialer, at); err != nil {
						t.Errorf("TCP, %s: %v; %v", name, err, kit.Status(t, farm, bed.LBs[0]).Counters)
					}
					if err := sameEcho(t, bed, &dialer, at); err != nil {
						t.Errorf("UDP, %s: %v; %v", name, err, kit.Status(t, farm, bed.LBs[0]).Counters)
					}
				}
			}
			for _, reason := range []string{"drop_extension_header", "drop_source_route", "drop_no_headroom"} {
				if n := kit.Counter(t, farm, reason, bed.LBs[0]); n > 0 {
					t.Errorf("%s: %d", reason, n)
				}
			}
		})
	}
}

// requestBytes asks for an answer longer than a segment.
func requestBytes(t *testing.T, bed *testbed.Bed, dialer *net.Dialer, at string) error {
	t.Helper()
	const bytes = 20_000
	return bed.Client.Do(func() error {
		conn, err := dialer.DialContext(t.Context(), "tcp", at)
		if err != nil {
			return err
		}
		client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
		answer, err := client.Get(fmt.Sprintf("http://%s/bytes/%d", at, bytes))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if n, err := io.Copy(io.Discard, answer.Body); err != nil || n != bytes {
			return fmt.Errorf("%d bytes, %w", n, err)
		}
		return nil
	})
}

// sameEcho sends datagrams of a flow, each again until it is answered. One server answers all.
func sameEcho(t *testing.T, bed *testbed.Bed, dialer *net.Dialer, at string) error {
	t.Helper()
	return bed.Client.Do(func() error {
		conn, err := dialer.DialContext(t.Context(), "udp", at)
		if err != nil {
			return err
		}
		defer conn.Close()
		first, answer := "", make([]byte, 1500)
		for i := range 4 {
			n := 0
			for end := time.Now().Add(20 * time.Second); n == 0; {
				if time.Now().After(end) {
					return fmt.Errorf("datagram %d has no answer", i)
				}
				if _, err := fmt.Fprintf(conn, "datagram %d", i); err != nil {
					return err
				}
				_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
				n, _ = conn.Read(answer)
			}
			if from := string(answer[:n]); first == "" {
				first = from
			} else if first[:2] != from[:2] {
				return fmt.Errorf("answers %q and %q: of two servers", first, from)
			}
		}
		return nil
	})
}
