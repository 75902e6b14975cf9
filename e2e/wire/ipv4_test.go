package wire

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestIPv4 reads from the links what an LB makes of IPv4 packets.
func TestIPv4(t *testing.T) {
	const conns = 40
	bed := kit.Up(t, testbed.Config{Servers: 3})
	kit.ServeAt(t, bed.VIP4, bed.Servers...)
	s := kit.Settings4(t, bed, "hunt:static:0")
	s.Choices = 3
	farm := kit.Start(t, bed, s)
	c := kit.Record(t, bed)
	var group sync.WaitGroup
	for k := range conns {
		group.Go(func() {
			if err := request4(t.Context(), bed.Client, k%2*kit.Class); err != nil {
				t.Errorf("connection %d: %v", k, err)
			}
		})
	}
	group.Wait()
	kit.WantMegabytes(t, bed, kit.URL4)
	kit.Settled(t, bed)
	w := kit.Recorded{Bed: bed, Frames: c.Stop(t)}
	w.WantForwarded4(t, 3)
	w.WantAnswers4(t)
	if passed := kit.Counter(t, farm, "pass_on_busy", bed.Servers...); passed < 2*conns {
		t.Errorf("%d offers passed on, want at least %d", passed, 2*conns)
	}
	kit.Judge(t, c.File, 1000)
	kit.WantGood(t, c.File, "ip.checksum.status", 1000)
}

// request4 makes one request to the VIP in IPv4, in packets of one class.
func request4(ctx context.Context, n *testbed.Node, class int) error {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		outer := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, class)
		})
		if outer != nil {
			return outer
		}
		return err
	}}
	ctx, cancel := context.WithTimeout(ctx, kit.Patience)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = n.Do(func() error {
			c, err = d.DialContext(ctx, network, address)
			return err
		})
		return c, err
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, kit.URL4+"/", nil)
	if err != nil {
		return err
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", answer.Status)
	}
	return nil
}

// TestIPv4Recovers: flows in IPv4 go on over another LB.
func TestIPv4Recovers(t *testing.T) {
	const flows = 100
	bed := kit.Up(t, testbed.Config{Servers: 4, LBs: 2})
	kit.Echoes(t, bed, bed.Servers...)
	farm := kit.Start(t, bed, kit.Settings4(t, bed, "hunt:static:0"))
	kit.Announce(t, bed, bed.LBs[0])
	f := kit.OpenTo(t, bed, bed.VIP4, bed.ClientAddrs4, 20000, flows)
	before := f.Servers()
	kit.Announce(t, bed, bed.LBs[1])
	kit.Alive(t, "over the other LB", f)
	kit.Alive(t, "again", f)
	if after := f.Servers(); !slices.Equal(before, after) {
		t.Errorf("flows were answered by %v, then %v", before, after)
	}
	if n := kit.Counter(t, farm, "stickiness_recovered", bed.LBs[1]); n != flows {
		t.Errorf("%d flows recovered, want %d", n, flows)
	}
	if n := kit.Counter(t, farm, "steer", bed.LBs[1]); n < flows {
		t.Errorf("%d packets steered, want at least %d", n, flows)
	}
	kit.WantNoStray(t, farm)
}
