package testbed

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func kill(t *testing.T, b *Bed, n *Node) {
	t.Helper()
	if err := b.Kill(n); err != nil {
		t.Fatal(err)
	}
}

func revive(t *testing.T, b *Bed, n *Node) {
	t.Helper()
	if err := b.Revive(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// An LB dies in the middle of the others' work and comes back.
func TestKilledLB(t *testing.T) {
	b := up(t, Config{Servers: 1, LBs: 3})
	who(t, b.LBs...)
	dying := b.LBs[1]
	process := start(t, dying, "sh", "-c", "setsid sleep 1000 & echo ready; wait")
	waitFor(t, "the process", func() bool { return process.Log() != "" })
	pin(t, dying)
	pin(t, b.LBs[2])

	kill(t, b, dying)
	wantSpread(t, b, b.LBs[0], b.LBs[2]) // at once: the router knows
	wantGone(t, process.Pid())
	if err := process.Wait(); err == nil {
		t.Error("the process of a dead host ended well")
	}
	for _, path := range []string{dying.Path(), dying.Pin()} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s survived (%v)", path, err)
		}
	}
	if _, err := os.Stat(b.LBs[2].Pin()); err != nil {
		t.Errorf("another's pins: %v", err)
	}
	if err := dying.Do(func() error { return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("entered a dead host: %v", err)
	}
	if err := b.Announce(b.LBs...); err == nil || !strings.Contains(err.Error(), "Revive") {
		t.Errorf("announced a dead host: %v", err)
	}
	kill(t, b, dying) // twice is no error

	revive(t, b, dying)
	wantSpread(t, b, b.LBs[0], b.LBs[2]) // not announced yet
	connect(t, b.Client, dying, dying.Addr)
	connect(t, b.Client, dying, dying.Addr4)
	connect(t, dying, b.Servers[0], b.Servers[0].Loopback())
	connect(t, b.Servers[0], dying, dying.Loopback())
	who(t, dying)
	announce(t, b, b.LBs...)
	wantSpread(t, b, b.LBs...)
}

func TestAllLBsDie(t *testing.T) {
	b := up(t, Config{Servers: 1, LBs: 2})
	for _, n := range b.LBs {
		kill(t, b, n)
	}
	for _, vip := range vips() {
		c := dial(t, b.Client, "udp", vip.Addr())
		hearErrors(t, c)
		if name, err := ask(t, c); !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("%q answers from the grave (%v), want %v", name, err, unix.ENETUNREACH)
		}
	}
	revive(t, b, b.LBs[1])
	who(t, b.LBs[1])
	announce(t, b, b.LBs[1])
	wantSpread(t, b, b.LBs[1])
}

// Others' streams flow on while hosts die and come back around them.
func TestDeathsAreNotOthers(t *testing.T) {
	b := up(t, Config{Servers: 2, LBs: 2})
	done := make(chan struct{})
	died := 0
	go func() {
		defer close(done)
		for range 5 {
			for _, n := range []*Node{b.LBs[0], b.Servers[1], b.LBs[1]} {
				if err := errors.Join(b.Kill(n), b.Revive(t.Context(), n)); err != nil {
					t.Error(err)
				}
				died++
			}
		}
	}()
	for streams := 0; ; streams++ {
		select {
		case <-done:
			if streams == 0 || died != 15 {
				t.Errorf("%d streams while %d hosts died", streams, died)
			}
			return
		default:
			stream(t, b.Client, b.Servers[0], 1<<20)
		}
	}
}

// A dead host sends no goodbye: its peers receive nothing.
func TestDeadHostIsSilent(t *testing.T) {
	b := up(t, Config{Servers: 2, Transits: 1})
	for _, n := range []*Node{b.Servers[1], b.LBs[0], b.Transits[0]} {
		spawn(t, n, "listen", netip.AddrPortFrom(n.Addr, Port).String())
		c := dial(t, b.Client, "tcp", n.Addr)
		c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err != nil { // accepted, not only established
			t.Fatal(err)
		}
		kill(t, b, n)
		c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s said goodbye: %v", n.Name, err)
		}
		revive(t, b, n)
		connect(t, b.Client, n, n.Addr)
	}
}

// A killed process alone does say goodbye, so that the silence above is the host's.
func TestDeadProcessIsNot(t *testing.T) {
	b := up(t, Config{Servers: 1})
	s := b.Servers[0]
	p := spawn(t, s, "listen", netip.AddrPortFrom(s.Addr, Port).String())
	c := dial(t, b.Client, "tcp", s.Addr)
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p.Signal(os.Kill)
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the kernel of a killed process said nothing (%v)", err)
	}
}

func TestCannotDie(t *testing.T) {
	b := up(t, Config{Servers: 1})
	for _, n := range []*Node{b.Router, b.Client} {
		if err := b.Kill(n); err == nil {
			t.Errorf("killed the %s", n.Name)
		}
	}
	if err := up(t, Config{Servers: 1}).Kill(b.LBs[0]); err == nil {
		t.Error("killed another bed's LB")
	}
	if err := b.Revive(t.Context(), b.LBs[0]); err == nil {
		t.Error("revived the living")
	}
}

func TestInterruptedRevival(t *testing.T) {
	b := up(t, Config{Servers: 1})
	kill(t, b, b.LBs[0])
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Revive(ctx, b.LBs[0]); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(b.LBs[0].Path()); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("half a host is left (%v)", err)
	}
	revive(t, b, b.LBs[0])
	connect(t, b.Client, b.LBs[0], b.LBs[0].Addr)
}

// A revival that fails half way leaves the host dead, not half a host.
func TestFailedRevival(t *testing.T) {
	b := up(t, Config{Servers: 1})
	lb := b.LBs[0]
	kill(t, b, lb)
	err := b.Router.Do(func() error { // something is where its cable should be
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: lb.Link}, PeerName: "other"})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Revive(t.Context(), lb); !errors.Is(err, unix.EEXIST) {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(lb.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("half a host is left (%v)", err)
	}
	revive(t, b, lb)
	connect(t, b.Client, lb, lb.Addr)
}

func TestCloseWithDeadAndRevived(t *testing.T) {
	b := up(t, Config{Servers: 3, LBs: 2, Delay: Delay{Mean: time.Millisecond}})
	for _, n := range []*Node{b.LBs[0], b.Servers[0], b.Servers[1]} {
		kill(t, b, n)
	}
	revive(t, b, b.Servers[1])
	pin(t, b.Servers[1])
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t)
	for what, err := range map[string]error{
		"Announce": b.Announce(b.LBs[1]), "Kill": b.Kill(b.LBs[1]), "Revive": b.Revive(t.Context(), b.LBs[0]), "SetLoss": b.SetLoss(0.1),
	} {
		if !errors.Is(err, errClosed) {
			t.Errorf("%s of a closed bed: %v", what, err)
		}
	}
}

// listen accepts on an address for a minute, greets each with one byte and
// keeps the connection.
func listen(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	os.Stdout.WriteString("ready\n")
	time.AfterFunc(time.Minute, func() { l.Close() })
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		c.Write([]byte{1})
		go io.Copy(io.Discard, c)
	}
}

// A failed LB is silent, its processes are dead, and the router goes on sending flows to it;
// only Kill makes the router turn to the others.
func TestFailedLB(t *testing.T) {
	for _, loss := range []float64{0, 0.001} { // with the programs of a lossy cable in the place, too
		b := up(t, Config{Servers: 1, LBs: 2})
		who(t, b.LBs...)
		if err := b.SetLoss(loss); err != nil {
			t.Fatal(err)
		}
		dying := b.LBs[1]
		process := start(t, dying, "sh", "-c", "echo ready; sleep 1000")
		waitFor(t, "the process", func() bool { return process.Log() != "" })

		if err := b.Fail(dying); err != nil {
			t.Fatal(err)
		}
		if err := b.SetLoss(0); err != nil {
			t.Fatal(err)
		}
		wantGone(t, process.Pid())
		answered, silent := 0, 0
		for range 100 {
			c := dial(t, b.Client, "udp", vips()[0].Addr())
			before := swallowed(t, b)
			if _, err := c.Write([]byte("who")); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "an answer, or a swallowed frame", func() bool {
				name := make([]byte, 100)
				c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
				switch n, err := c.Read(name); {
				case err == nil && string(name[:n]) != b.LBs[0].Name:
					t.Fatalf("%s answers from a dead host", name[:n])
				case err == nil:
					answered++
				case swallowed(t, b) > before:
					silent++
				default:
					return false
				}
				return true
			})
		}
		if answered == 0 || silent == 0 {
			t.Errorf("%d of 100 flows were answered: the router sends to one LB only", answered)
		}
		kill(t, b, dying)
		wantSpread(t, b, b.LBs[0])
		revive(t, b, dying)
		who(t, dying)
		announce(t, b, b.LBs...)
		wantSpread(t, b, b.LBs...)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Swallowed(); !errors.Is(err, errClosed) {
			t.Errorf("Swallowed of a closed bed: %v", err)
		}
		if err := b.Fail(dying); !errors.Is(err, errClosed) {
			t.Errorf("Fail of a closed bed: %v", err)
		}
	}
}

func swallowed(t *testing.T, b *Bed) uint64 {
	t.Helper()
	n, err := b.Swallowed()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTrouble: the changes of a link and of a container that experiments make really happen,
// and the node behind them answers again.
func TestTrouble(t *testing.T) {
	bed := up(t, Config{Servers: 2})
	n := bed.Servers[0]
	reaches := func(when string) {
		t.Helper()
		deadline := time.Now().Add(5 * time.Second)
		for {
			l, err := n.Listen("tcp", net.JoinHostPort(n.Addr.String(), "9"))
			if err != nil {
				t.Fatal(err)
			}
			conn, err := bed.Client.DialContext(t.Context(), "tcp", l.Addr().String())
			l.Close()
			if err == nil {
				conn.Close()
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", when, err)
			}
		}
	}
	own, gateway := net.HardwareAddr{2, 0, 0, 0, 7, 1}, net.HardwareAddr{2, 0, 0, 0, 7, 2}
	if err := n.SetMAC(own); err != nil {
		t.Fatal(err)
	}
	if mac, err := n.MAC(); err != nil || mac.String() != own.String() {
		t.Errorf("its MAC is %s, %v", mac, err)
	}
	reaches("after another MAC")
	if err := n.SetGatewayMAC(gateway); err != nil {
		t.Fatal(err)
	}
	reaches("after another MAC of the gateway")
	if err := n.BurstRoutes(400); err != nil {
		t.Error(err)
	}
}
