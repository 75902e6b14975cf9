package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/topo"
)

// churn opens and ends connections, several at once, in every way there is.
func churn(t *testing.T, bed *testbed.Bed, conns int) {
	t.Helper()
	const workers = 16
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var group errgroup.Group
	for w := range workers {
		group.Go(func() error {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			return bed.Client.Do(func() error {
				for range conns / workers {
					if err := oneOfMany(t.Context(), bed, random); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// oneOfMany runs on a thread inside the client.
func oneOfMany(ctx context.Context, bed *testbed.Bed, random *rand.Rand) error {
	ctx, cancel := context.WithTimeout(ctx, kit.Patience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp6", kit.VIP(bed).String())
	if err != nil {
		return err
	}
	c := conn.(*net.TCPConn)
	defer c.Close()
	deadline, _ := ctx.Deadline()
	c.SetDeadline(deadline)
	switch random.IntN(6) {
	case 0: // closed at once
	case 1: // reset at once
		return c.SetLinger(0)
	case 2: // reset with a request on its way
		fmt.Fprintln(c, "name")
		return c.SetLinger(0)
	case 3:
		fmt.Fprintln(c, "name")
		_, err = bufio.NewReader(c).ReadString('\n')
	case 4:
		fmt.Fprintln(c, "close")
		_, err = io.Copy(io.Discard, c)
	case 5:
		fmt.Fprintln(c, "abort")
		if _, err = io.Copy(io.Discard, c); errors.Is(err, unix.ECONNRESET) {
			err = nil
		}
	}
	return err
}

// TestSocketsAreCountedExactly: the count is that of the kernel's own table at
// any moment of rest, after thousands of connections that ended in every way,
// and across a restart of the agent.
func TestSocketsAreCountedExactly(t *testing.T) {
	const held, conns = 40, 4000
	bed := kit.Up(t, testbed.Config{Servers: 2})
	servers := kit.Obedient(t, bed)
	s := kit.Settings(t, "hunt:always")
	s.Measure = topo.Sockets
	farm := kit.Start(t, bed, s)
	exact := func(least int) {
		t.Helper()
		for _, n := range bed.Servers {
			kit.Eventually(t, n.Name+" counts what its kernel has", func() bool {
				return int(kit.LoadAt(t, farm, n).Open) == len(kit.TCP6(t, bed, n, "01"))
			})
		}
		kit.Eventually(t, "every connection is counted", func() bool { return int(kit.LoadOfAll(t, farm).Open) >= least })
		if n := int(kit.LoadOfAll(t, farm).Open); n > least+2 { // the kernel may lose sight of a client that reset
			t.Errorf("%d connections are open, want %d", n, least)
		}
	}
	exact(0)
	var open []*net.TCPConn
	hold := func(n int) {
		for range n {
			open = append(open, kit.Dial(t, bed))
		}
	}
	hold(held)
	exact(held)
	churn(t, bed, conns)
	exact(held)

	for _, n := range bed.Servers { // what was open before an agent is counted, once
		kit.Kill(t, farm.Daemon(n))
		kit.Restart(t, bed, n, "agent")
	}
	exact(held)
	hold(held)
	exact(2 * held)
	churn(t, bed, conns/4)
	exact(2 * held)
	for i, c := range open {
		if i%2 == 0 {
			kit.Reset(t, c)
		} else {
			c.Close()
		}
	}
	servers.Close()
	kit.EventuallyIs(t, "open connections", 0, func() uint32 { return kit.LoadOfAll(t, farm).Open })
	exact(0)
}

// TestSocketsOfOtherNamespaces: a connection to the same address and port in
// another server's network namespace is that server's.
func TestSocketsOfOtherNamespaces(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	kit.Obedient(t, bed)
	s := kit.Settings(t, "hunt:always")
	s.Measure = topo.Sockets
	farm := kit.Start(t, bed, s)
	for i, n := range bed.Servers {
		c, err := n.DialContext(t.Context(), "tcp6", kit.VIP(bed).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := kit.Ask(t, c); got != n.Name {
			t.Fatalf("%s answers itself as %q", n.Name, got)
		}
		for j, m := range bed.Servers {
			want := uint32(0)
			if j <= i {
				want = 1
			}
			kit.EventuallyIs(t, "open at "+m.Name, want, func() uint32 { return kit.LoadAt(t, farm, m).Open })
		}
	}
}

// TestBusyIsOpenSockets: with load: sockets, static:3 lets a server have
// three connections, idle or not.
func TestBusyIsOpenSockets(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 3})
	kit.Obedient(t, bed)
	s := kit.Settings(t, "hunt:static:3")
	s.Measure = topo.Sockets
	farm := kit.Start(t, bed, s)
	made := uint32(0)
	kit.WantStatic(t, farm, 3, 24, func() {
		kit.Ask(t, kit.Dial(t, bed))
		made++
		kit.EventuallyIs(t, "open", made, func() uint32 { return kit.LoadOfAll(t, farm).Open })
	}, func(i int) uint64 { return uint64(kit.LoadAt(t, farm, bed.Servers[i]).Open) })
}
