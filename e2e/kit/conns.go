package kit

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"proffer/api"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/responder"
)

// VIP is the service as a socket address.
func VIP(bed *testbed.Bed) netip.AddrPort { return netip.AddrPortFrom(bed.VIP, testbed.Port) }

// Dial opens a connection to the service; it ends with the test.
func Dial(t *testing.T, bed *testbed.Bed) *net.TCPConn {
	t.Helper()
	c, err := TryDial(t, bed, Patience)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TryDial(t *testing.T, bed *testbed.Bed, limit time.Duration) (*net.TCPConn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c, err := bed.Client.DialContext(ctx, "tcp6", VIP(bed).String())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn), nil
}

// ListenAt opens a listener on the service's address at a server that holds
// backlog + 1 connections; no process accepts them yet.
func ListenAt(t *testing.T, bed *testbed.Bed, n *testbed.Node, backlog int) net.Listener {
	t.Helper()
	var l net.Listener
	err := n.Do(func() (err error) {
		l, err = responder.Listen(VIP(bed), backlog)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// Obedient runs servers on nodes, or on every server node, that do what each
// line of a client has:
//
//	name     answer with the server's name
//	quiet    nothing
//	close    close the connection
//	abort    reset it
func Obedient(t *testing.T, bed *testbed.Bed, nodes ...*testbed.Node) *crew {
	t.Helper()
	if len(nodes) == 0 {
		nodes = bed.Servers
	}
	servers := new(crew)
	for _, n := range nodes {
		l := ListenAt(t, bed, n, farmrun.Backlog)
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

// Say sends a line.
func Say(t *testing.T, c net.Conn, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(c, line); err != nil {
		t.Fatal(err)
	}
}

// Ask sends "name" and returns the answer.
func Ask(t *testing.T, c net.Conn) string {
	t.Helper()
	Say(t, c, "name")
	c.SetReadDeadline(time.Now().Add(Patience))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// Reset ends a connection by a RST.
func Reset(t *testing.T, c *net.TCPConn) {
	t.Helper()
	if err := c.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// LoadAt is the service's load by the agent of a node.
func LoadAt(t *testing.T, farm *farmrun.Farm, n *testbed.Node) api.LoadStatus {
	t.Helper()
	s := Status(t, farm, n)
	if len(s.Services) != 1 || s.Services[0].Load == nil {
		t.Fatalf("%s has no load: %+v", n.Name, s)
	}
	return *s.Services[0].Load
}

// LoadOfAll adds up the loads that the agents report.
func LoadOfAll(t *testing.T, farm *farmrun.Farm) (sum api.LoadStatus) {
	t.Helper()
	for _, n := range farm.Bed.Servers {
		l := LoadAt(t, farm, n)
		sum.Asking += l.Asking
		sum.Expected += l.Expected
		sum.Open += l.Open
	}
	return sum
}

// EventuallyIs waits until a number is what is wanted, and shows the last.
func EventuallyIs[N comparable](t *testing.T, what string, want N, number func() N) {
	t.Helper()
	last := number()
	for deadline := time.Now().Add(Patience); last != want; last = number() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v after %v, want %v", what, last, Patience, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Decisions are what the agents have decided so far, server by server.
type Decisions struct{ Avail, Force, Busy []uint64 }

func Decided(t *testing.T, farm *farmrun.Farm) (d Decisions) {
	t.Helper()
	for _, n := range farm.Bed.Servers {
		c := Status(t, farm, n).Counters
		d.Avail = append(d.Avail, c["accept_avail"])
		d.Force = append(d.Force, c["accept_force"])
		d.Busy = append(d.Busy, c["pass_on_busy"])
	}
	return d
}

func (d Decisions) Since(before Decisions) Decisions {
	minus := func(a, b []uint64) []uint64 {
		out := slices.Clone(a)
		for i := range out {
			out[i] -= b[i]
		}
		return out
	}
	return Decisions{minus(d.Avail, before.Avail), minus(d.Force, before.Force), minus(d.Busy, before.Busy)}
}

func Sum(n []uint64) (total uint64) {
	for _, v := range n {
		total += v
	}
	return total
}

// WantStatic makes offers one after another and checks static:c at each: a
// server that took it unforced was below c, a server that passed it on was not. busy is what a server
// has in hand before the offer; offer returns when its load is counted.
func WantStatic(t *testing.T, farm *farmrun.Farm, c uint64, offers int, offer func(), busy func(server int) uint64) {
	t.Helper()
	var passed uint64
	for k := range offers {
		had := make([]uint64, len(farm.Bed.Servers))
		for i := range had {
			had[i] = busy(i)
		}
		before := Decided(t, farm)
		offer()
		d := Decided(t, farm).Since(before)
		for i := range had {
			if d.Avail[i] > 0 && had[i] >= c || d.Busy[i] > 0 && had[i] < c {
				t.Fatalf("offer %d met %v in hand: taken by %v, passed on by %v", k, had, d.Avail, d.Busy)
			}
		}
		if Sum(d.Avail)+Sum(d.Force) != 1 {
			t.Fatalf("offer %d was taken by %v and, forced, by %v", k, d.Avail, d.Force)
		}
		passed += Sum(d.Busy)
	}
	if passed == 0 {
		t.Fatalf("no server ever had %d in hand: the rule was not tried", c)
	}
}

// TCP6 returns the lines of the kernel's socket table in a node whose local end
// is the service, in a state as it prints them: "01" is ESTABLISHED, "0A" LISTEN.
func TCP6(t *testing.T, bed *testbed.Bed, n *testbed.Node, state string) (lines [][]string) {
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

// AcceptQueue is how many connections wait to be accepted at a server; the
// table shows it as the listener's receive queue.
func AcceptQueue(t *testing.T, bed *testbed.Bed, n *testbed.Node) (length int) {
	t.Helper()
	for _, fields := range TCP6(t, bed, n, "0A") {
		if _, err := fmt.Sscanf(fields[4], "00000000:%X", &length); err != nil {
			t.Fatalf("queues %q: %v", fields[4], err)
		}
	}
	return length
}

// Every is a steady stream of requests, from another address than dial's: a port may not be
// that of an earlier connection, which its server would challenge.
func Every(gap time.Duration, n int) []traffic.Request {
	requests := make([]traffic.Request, n)
	for i := range requests {
		requests[i] = traffic.Request{At: time.Duration(i) * gap, From: netip.AddrPortFrom(testbed.ClientAddr(2), uint16(10000+i))}
	}
	return requests
}
