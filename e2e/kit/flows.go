package kit

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/responder"
	"proffer/topo"
)

// Within is how long a flow may take to answer before it counts as silent:
// long enough for TCP to send a lost segment again, on a slow machine too.
const Within = 20 * time.Second

// Echoes runs an Echo on the VIP, IPv6 and IPv4, of every server node.
func Echoes(t *testing.T, bed *testbed.Bed, nodes ...*testbed.Node) map[string]*responder.Echo {
	t.Helper()
	all := map[string]*responder.Echo{}
	for _, n := range nodes {
		all[n.Name] = Echo(t, n, bed.VIP, bed.VIP4)
	}
	return all
}

// Echo runs one on the given addresses of a node until the test ends.
func Echo(t *testing.T, n *testbed.Node, vips ...netip.Addr) *responder.Echo {
	t.Helper()
	e := responder.NewEcho(n.Name)
	t.Cleanup(func() { e.Close() })
	for _, vip := range vips {
		var l net.Listener
		err := n.Do(func() (err error) {
			l, err = responder.Listen(netip.AddrPortFrom(vip, testbed.Port), 1024)
			return err
		})
		if err != nil {
			t.Fatalf("listen on %s: %v", n.Name, err)
		}
		go e.Serve(l) // ends with Close
	}
	return e
}

// Ends gives k flows an address each, spread over the client's.
func Ends(addrs []netip.Addr, first, k int) []netip.AddrPort {
	from := make([]netip.AddrPort, k)
	for i := range from {
		from[i] = netip.AddrPortFrom(addrs[i%len(addrs)], uint16(first+i/len(addrs)))
	}
	return from
}

// Open opens k long flows to the VIP; all of them must answer.
func Open(t *testing.T, bed *testbed.Bed, first, k int) *traffic.Flows {
	t.Helper()
	return OpenTo(t, bed, bed.VIP, bed.ClientAddrs, first, k)
}

func OpenTo(t *testing.T, bed *testbed.Bed, vip netip.Addr, clients []netip.Addr, first, k int) *traffic.Flows {
	t.Helper()
	f, err := traffic.OpenFlows(t.Context(), traffic.Dial{
		To: netip.AddrPortFrom(vip, testbed.Port), From: Ends(clients, first, k),
		Rate: 1000, Timeout: Within, Enter: bed.Client.Enter,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	Alive(t, "after opening", f)
	return f
}

// Alive makes every flow exchange a line, and fails if one does not.
func Alive(t *testing.T, when string, f *traffic.Flows) {
	t.Helper()
	bad := 0
	for _, a := range f.Exchange(t.Context(), Within) {
		if a.Outcome == traffic.OK {
			continue
		}
		if bad++; bad <= 5 {
			t.Errorf("%s: flow from %s: %s (%s)", when, a.From, a.Outcome, a.Cause)
		}
	}
	if bad > 5 {
		t.Errorf("%s: and %d more", when, bad-5)
	}
}

// The flows of a service without hunting, through changes of its pool and of the LB:
// `single` keeps them, by its table, by the history and by agents; `stateless` does not.

const SingleFlows = 60

// Lost counts the flows that no longer answer, and those that another server answers.
func Lost(t *testing.T, f *traffic.Flows, at []string) (dead, moved int) {
	t.Helper()
	for i, a := range f.Exchange(t.Context(), Within) {
		switch {
		case a.Outcome != traffic.OK:
			dead++
		case a.Server != at[i]:
			moved++
		}
	}
	return dead, moved
}

// Workshop is a server that answers a line by its name: at once, and goes on ("stay"), or one after
// the other, each after some time ("work").
func Workshop(t *testing.T, bed *testbed.Bed, n *testbed.Node, takes time.Duration) {
	t.Helper()
	l, err := n.Listen("tcp", netip.AddrPortFrom(bed.VIP, testbed.Port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var hands sync.Mutex
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					if lines.Text() == "work" {
						hands.Lock()
						time.Sleep(takes)
						hands.Unlock()
						fmt.Fprintln(conn, n.Name)
						return
					}
					fmt.Fprintln(conn, n.Name)
				}
			}()
		}
	}()
}

// AskLine sends a line and returns the answer.
func AskLine(conn net.Conn, line string) (string, error) {
	conn.SetDeadline(time.Now().Add(Patience))
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == io.EOF {
		err = nil
	}
	return answer[:max(0, len(answer)-1)], err
}

// Everywhere gives a farm its service over TCP and UDP, at both VIPs; at that of IPv6 alone without agents.
func Everywhere(bed *testbed.Bed, s farmrun.Settings) farmrun.Settings {
	each := func(do func(name string, vip topo.VIP)) {
		for _, addr := range []netip.Addr{bed.VIP, bed.VIP4} {
			for _, protocol := range []topo.Protocol{topo.TCP, topo.UDP} {
				if !s.NoAgents || addr.Is6() {
					do(fmt.Sprintf("%v-%d", protocol, addr.BitLen()), topo.VIP{Addr: addr, Port: testbed.Port, Protocol: protocol})
				}
			}
		}
	}
	s.LB = func(lb *topo.LB) {
		svc := lb.Services[0]
		lb.Services = nil
		each(func(name string, vip topo.VIP) {
			svc.Name, svc.VIP = name, vip
			lb.Services = append(lb.Services, svc)
		})
	}
	s.Agent = func(_ *testbed.Node, a *topo.Agent) {
		o := a.Services[0]
		a.Services = nil
		each(func(name string, vip topo.VIP) {
			o.Name, o.VIP = name, vip
			a.Services = append(a.Services, o)
		})
	}
	return s
}

// Families are the service's addresses, each with the client's of its kind.
func Families(bed *testbed.Bed) map[netip.Addr][]netip.Addr {
	return map[netip.Addr][]netip.Addr{bed.VIP: bed.ClientAddrs, bed.VIP4: bed.ClientAddrs4}
}
