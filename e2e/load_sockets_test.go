package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"proffer/lab/testbed"
	"proffer/topo"
)

// tcp6 returns the lines of the kernel's socket table in a node whose local end
// is the service, in a state as it prints them: "01" is ESTABLISHED, "0A" LISTEN.
func tcp6(t *testing.T, bed *testbed.Bed, n *testbed.Node, state string) (lines [][]string) {
	t.Helper()
	err := n.Do(func() error {
		f, err := os.Open("/proc/thread-self/net/tcp6")
		if err != nil {
			return err
		}
		defer f.Close()
		table := bufio.NewScanner(f)
		for table.Scan() {
			fields := strings.Fields(table.Text())
			if strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", testbed.Port)) && fields[3] == state {
				lines = append(lines, fields)
			}
		}
		return table.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// acceptQueue is how many connections wait to be accepted at a server; the
// table shows it as the listener's receive queue.
func acceptQueue(t *testing.T, bed *testbed.Bed, n *testbed.Node) (length int) {
	t.Helper()
	for _, fields := range tcp6(t, bed, n, "0A") {
		if _, err := fmt.Sscanf(fields[4], "00000000:%X", &length); err != nil {
			t.Fatalf("queues %q: %v", fields[4], err)
		}
	}
	return length
}

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
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp6", vip(bed).String())
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
	bed := up(t, testbed.Config{Servers: 2})
	servers := obedient(t, bed)
	s := settings(t, "hunt:always")
	s.Measure = topo.Sockets
	farm := start(t, bed, s)
	exact := func(least int) {
		t.Helper()
		for _, n := range bed.Servers {
			eventually(t, n.Name+" counts what its kernel has", func() bool {
				return int(loadAt(t, farm, n).Open) == len(tcp6(t, bed, n, "01"))
			})
		}
		eventually(t, "every connection is counted", func() bool { return int(loadOfAll(t, farm).Open) >= least })
		if n := int(loadOfAll(t, farm).Open); n > least+2 { // the kernel may lose sight of a client that reset
			t.Errorf("%d connections are open, want %d", n, least)
		}
	}
	exact(0)
	var open []*net.TCPConn
	hold := func(n int) {
		for range n {
			open = append(open, dial(t, bed))
		}
	}
	hold(held)
	exact(held)
	churn(t, bed, conns)
	exact(held)

	for _, n := range bed.Servers { // what was open before an agent is counted, once
		kill(t, farm.Daemon(n))
		restart(t, bed, n, "agent")
	}
	exact(held)
	hold(held)
	exact(2 * held)
	churn(t, bed, conns/4)
	exact(2 * held)
	for i, c := range open {
		if i%2 == 0 {
			reset(t, c)
		} else {
			c.Close()
		}
	}
	servers.Close()
	eventuallyIs(t, "open connections", 0, func() uint32 { return loadOfAll(t, farm).Open })
	exact(0)
}

// TestSocketsOfOtherNamespaces: a connection to the same address and port in
// another server's network namespace is that server's.
func TestSocketsOfOtherNamespaces(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 2})
	obedient(t, bed)
	s := settings(t, "hunt:always")
	s.Measure = topo.Sockets
	farm := start(t, bed, s)
	for i, n := range bed.Servers {
		c, err := n.DialContext(t.Context(), "tcp6", vip(bed).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := ask(t, c); got != n.Name {
			t.Fatalf("%s answers itself as %q", n.Name, got)
		}
		for j, m := range bed.Servers {
			want := uint32(0)
			if j <= i {
				want = 1
			}
			eventuallyIs(t, "open at "+m.Name, want, func() uint32 { return loadAt(t, farm, m).Open })
		}
	}
}

// TestBusyIsOpenSockets: with load: sockets, static:3 lets a server have
// three connections, idle or not.
func TestBusyIsOpenSockets(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 3})
	obedient(t, bed)
	s := settings(t, "hunt:static:3")
	s.Measure = topo.Sockets
	farm := start(t, bed, s)
	made := uint32(0)
	wantStatic(t, farm, 3, 24, func() {
		ask(t, dial(t, bed))
		made++
		eventuallyIs(t, "open", made, func() uint32 { return loadOfAll(t, farm).Open })
	}, func(i int) uint64 { return uint64(loadAt(t, farm, bed.Servers[i]).Open) })
}
