package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"proffer/api"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
)

// vip is the service as a socket address.
func vip(bed *testbed.Bed) netip.AddrPort { return netip.AddrPortFrom(bed.VIP, testbed.Port) }

// dial opens a connection to the service; it ends with the test.
func dial(t *testing.T, bed *testbed.Bed) *net.TCPConn {
	t.Helper()
	c, err := tryDial(t, bed, patience)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tryDial(t *testing.T, bed *testbed.Bed, limit time.Duration) (*net.TCPConn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c, err := bed.Client.DialContext(ctx, "tcp6", vip(bed).String())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn), nil
}

// listenAt opens a listener on the service's address at a server that holds
// backlog + 1 connections; no process accepts them yet.
func listenAt(t *testing.T, bed *testbed.Bed, n *testbed.Node, backlog int) net.Listener {
	t.Helper()
	var l net.Listener
	err := n.Do(func() (err error) {
		l, err = responder.Listen(vip(bed), backlog)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// obedient runs servers on nodes, or on every server node, that do what each
// line of a client has:
//
//	name     answer with the server's name
//	quiet    nothing
//	close    close the connection
//	abort    reset it
func obedient(t *testing.T, bed *testbed.Bed, nodes ...*testbed.Node) *crew {
	t.Helper()
	if len(nodes) == 0 {
		nodes = bed.Servers
	}
	servers := new(crew)
	for _, n := range nodes {
		l := listenAt(t, bed, n, farmrun.Backlog)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				servers.add(c)
				go obey(c.(*net.TCPConn), n.Name)
			}
		}()
	}
	return servers
}

// crew are the connections of obedient servers.
type crew struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (w *crew) add(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
}

// Close closes what is still open on the servers' side.
func (w *crew) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
}

func obey(c *net.TCPConn, name string) {
	defer c.Close()
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		switch lines.Text() {
		case "name":
			fmt.Fprintln(c, name)
		case "close":
			return
		case "abort":
			c.SetLinger(0)
			return
		}
	}
}

// say sends a line.
func say(t *testing.T, c net.Conn, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(c, line); err != nil {
		t.Fatal(err)
	}
}

// ask sends "name" and returns the answer.
func ask(t *testing.T, c net.Conn) string {
	t.Helper()
	say(t, c, "name")
	c.SetReadDeadline(time.Now().Add(patience))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// reset ends a connection by a RST.
func reset(t *testing.T, c *net.TCPConn) {
	t.Helper()
	if err := c.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// loadAt is the service's load by the agent of a node.
func loadAt(t *testing.T, farm *farmrun.Farm, n *testbed.Node) api.LoadStatus {
	t.Helper()
	s := status(t, farm, n)
	if len(s.Services) != 1 || s.Services[0].Load == nil {
		t.Fatalf("%s has no load: %+v", n.Name, s)
	}
	return *s.Services[0].Load
}

// loadOfAll adds up the loads that the agents report.
func loadOfAll(t *testing.T, farm *farmrun.Farm) (sum api.LoadStatus) {
	t.Helper()
	for _, n := range farm.Bed.Servers {
		l := loadAt(t, farm, n)
		sum.Asking += l.Asking
		sum.Expected += l.Expected
		sum.Open += l.Open
	}
	return sum
}

// eventuallyIs waits until a number is what is wanted, and shows the last.
func eventuallyIs[N comparable](t *testing.T, what string, want N, number func() N) {
	t.Helper()
	last := number()
	for deadline := time.Now().Add(patience); last != want; last = number() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v after %v, want %v", what, last, patience, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// decisions are what the agents have decided so far, server by server.
type decisions struct{ avail, force, busy []uint64 }

func decided(t *testing.T, farm *farmrun.Farm) (d decisions) {
	t.Helper()
	for _, n := range farm.Bed.Servers {
		c := status(t, farm, n).Counters
		d.avail = append(d.avail, c["accept_avail"])
		d.force = append(d.force, c["accept_force"])
		d.busy = append(d.busy, c["pass_on_busy"])
	}
	return d
}

func (d decisions) since(before decisions) decisions {
	minus := func(a, b []uint64) []uint64 {
		out := slices.Clone(a)
		for i := range out {
			out[i] -= b[i]
		}
		return out
	}
	return decisions{minus(d.avail, before.avail), minus(d.force, before.force), minus(d.busy, before.busy)}
}

func sum(n []uint64) (total uint64) {
	for _, v := range n {
		total += v
	}
	return total
}

// wantStatic makes offers one after another and checks static:c at each: a
// server that took it unforced was below c, a server that passed it on was not. busy is what a server
// has in hand before the offer; offer returns when its load is counted.
func wantStatic(t *testing.T, farm *farmrun.Farm, c uint64, offers int, offer func(), busy func(server int) uint64) {
	t.Helper()
	var passed uint64
	for k := range offers {
		had := make([]uint64, len(farm.Bed.Servers))
		for i := range had {
			had[i] = busy(i)
		}
		before := decided(t, farm)
		offer()
		d := decided(t, farm).since(before)
		for i := range had {
			if d.avail[i] > 0 && had[i] >= c || d.busy[i] > 0 && had[i] < c {
				t.Fatalf("offer %d met %v in hand: taken by %v, passed on by %v", k, had, d.avail, d.busy)
			}
		}
		if sum(d.avail)+sum(d.force) != 1 {
			t.Fatalf("offer %d was taken by %v and, forced, by %v", k, d.avail, d.force)
		}
		passed += sum(d.busy)
	}
	if passed == 0 {
		t.Fatalf("no server ever had %d in hand: the rule was not tried", c)
	}
}
