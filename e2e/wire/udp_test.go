package wire

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/responder"
	"proffer/topo"
)

// overUDP returns settings whose service is UDP, at both VIPs.
func overUDP(bed *testbed.Bed, s farmrun.Settings) farmrun.Settings {
	at := func(name string, vip topo.VIP, addr netip.Addr) (string, topo.VIP) {
		return fmt.Sprintf("%s-%d", name, addr.BitLen()), topo.VIP{Addr: addr, Port: vip.Port, Protocol: topo.UDP}
	}
	s.LB = func(lb *topo.LB) {
		six := lb.Services[0]
		four := six
		six.Name, six.VIP = at(six.Name, six.VIP, bed.VIP)
		four.Name, four.VIP = at(four.Name, four.VIP, bed.VIP4)
		lb.Services = []topo.Service{six, four}
	}
	s.Agent = func(_ *testbed.Node, a *topo.Agent) {
		six := a.Services[0]
		four := six
		six.Name, six.VIP = at(six.Name, six.VIP, bed.VIP)
		four.Name, four.VIP = at(four.Name, four.VIP, bed.VIP4)
		a.Services = []topo.Offering{six, four}
	}
	return s
}

// dialUDP opens a flow of datagrams to a VIP.
func dialUDP(t *testing.T, bed *testbed.Bed, vip netip.Addr) net.Conn {
	t.Helper()
	c, err := bed.Client.DialContext(t.Context(), "udp", netip.AddrPortFrom(vip, testbed.Port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// listenUDP opens a socket on an address of a node.
func listenUDP(t *testing.T, n *testbed.Node, addr netip.Addr) (c *net.UDPConn) {
	t.Helper()
	err := n.Do(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, testbed.Port)))
		return err
	})
	if err != nil {
		t.Fatalf("listen on %s: %v", n.Name, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// echoUDP answers datagrams to both VIPs at every server.
func echoUDP(t *testing.T, bed *testbed.Bed) map[string]*responder.EchoUDP {
	t.Helper()
	all := map[string]*responder.EchoUDP{}
	for _, n := range bed.Servers {
		e := responder.NewEchoUDP(n.Name)
		t.Cleanup(func() { e.Close() })
		for vip := range kit.Families(bed) {
			go e.Serve(listenUDP(t, n, vip)) // ends with Close
		}
		all[n.Name] = e
	}
	return all
}

// openUDP opens flows of datagrams and lets each speak until its server has seen
// that it goes on after an answer.
func openUDP(t *testing.T, bed *testbed.Bed, vip netip.Addr, flows int) *traffic.Flows {
	t.Helper()
	f, err := traffic.OpenDatagrams(traffic.Dial{
		To: netip.AddrPortFrom(vip, testbed.Port), From: kit.Ends(kit.Families(bed)[vip], 20000, flows), Enter: bed.Client.Enter,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	kit.Alive(t, "first", f)
	kit.Alive(t, "second", f)
	return f
}

// TestTwoDatagramsAtOnce: a client that does not wait for an answer has one
// server all the same.
func TestTwoDatagramsAtOnce(t *testing.T) {
	const flows = 100 // to each VIP
	for _, policy := range []string{"hunt:static:0", "hunt:static:1", "hunt:static:1000"} {
		bed := kit.Up(t, testbed.Config{Servers: 4})
		servers := echoUDP(t, bed)
		farm := kit.Start(t, bed, overUDP(bed, kit.Settings(t, policy)))
		for vip := range kit.Families(bed) {
			for i := range flows {
				c := dialUDP(t, bed, vip)
				for k := range 2 {
					if _, err := fmt.Fprintf(c, "%d %d", i, k); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		at := map[netip.AddrPort][]string{}
		kit.Eventually(t, "every datagram arrives", func() bool {
			clear(at)
			heard := 0
			for name, e := range servers {
				for _, d := range e.Received() {
					at[d.From] = append(at[d.From], name)
					heard++
				}
			}
			return heard == 4*flows
		})
		for from, names := range at {
			if len(names) != 2 || names[0] != names[1] {
				t.Errorf("%s: the datagrams from %v arrived at %v", policy, from, names)
			}
		}
		if n := kit.Counter(t, farm, "offer_datagram", bed.LBs[0]); n < 2*flows {
			t.Errorf("%s: %d datagrams offered for %d flows", policy, n, 2*flows)
		}
	}
}

// TestUDPFlowsStay: flows keep their server over another LB, which has never
// heard of them, and over the death of an LB's daemon.
func TestUDPFlowsStay(t *testing.T) {
	const flows = 50 // to each VIP
	bed := kit.Up(t, testbed.Config{Servers: 4, LBs: 2})
	echoUDP(t, bed)
	farm := kit.Start(t, bed, overUDP(bed, kit.Settings(t, "hunt:static:1")))
	first, second := bed.LBs[0], bed.LBs[1]
	kit.Announce(t, bed, first)
	all, before := map[netip.Addr]*traffic.Flows{}, map[netip.Addr][]string{}
	for vip := range kit.Families(bed) {
		all[vip] = openUDP(t, bed, vip, flows)
		before[vip] = all[vip].Servers()
	}
	stay := func(when string) {
		t.Helper()
		for vip, f := range all {
			for range 3 { // a server that signals again, then steered
				kit.Alive(t, when, f)
			}
			if after := f.Servers(); !slices.Equal(before[vip], after) {
				t.Errorf("%s: answered by %v, before by %v", when, after, before[vip])
			}
		}
	}
	kit.Announce(t, bed, second)
	stay("over the other LB")
	if n := kit.Counter(t, farm, "steer", second); n < 2*flows {
		t.Errorf("the other LB steered %d datagrams, want at least %d", n, 2*flows)
	}
	if n := kit.Counter(t, farm, "recovered", bed.Servers...); n < 2*flows {
		t.Errorf("%d datagrams were asked for and found, want at least %d", n, 2*flows)
	}
	kit.Announce(t, bed, first)
	kit.Kill(t, farm.Daemon(first))
	stay("without a daemon")
	if err := farm.Launch(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	stay("under the new daemon")
	if n := kit.Counter(t, farm, "offer_datagram", first); n > 0 {
		t.Errorf("the new daemon had to ask for %d datagrams", n)
	}
}

// TestUDPOnTheWire: flows of datagrams please tshark, checksums and all.
func TestUDPOnTheWire(t *testing.T) {
	const flows = 20 // to each VIP
	bed := kit.Up(t, testbed.Config{Servers: 3})
	echoUDP(t, bed)
	farm := kit.Start(t, bed, overUDP(bed, kit.Settings(t, "hunt:static:0")))
	c := kit.Record(t, bed)
	for vip := range kit.Families(bed) {
		openUDP(t, bed, vip, flows)
	}
	c.Stop(t)
	kit.WantGood(t, c.File, "udp.checksum.status", 2*8*flows)
	kit.WantGood(t, c.File, "ip.checksum.status", 8*flows)
	wantNoFaults(t, c.File)
	if n := kit.Counter(t, farm, "signal_create", bed.Servers...); n < 2*flows {
		t.Errorf("%d answers signalled to the LB, want at least %d", n, 2*flows)
	}
}

// wantNoFaults is judge for what is not TCP.
func wantNoFaults(t *testing.T, file string) {
	t.Helper()
	for _, d := range kit.Dissect(t, file) {
		if faults := d.Faults(); len(faults) > 0 {
			t.Errorf("tshark finds fault with packet %s on %s (%s): %q", d.Number, d.Link, d.Protocols, faults)
		}
	}
}

// TestUDPIdle: nothing ends a flow of datagrams but silence; then nothing is left
// of it, and the next datagram begins another.
func TestUDPIdle(t *testing.T) {
	const flows = 20
	bed := kit.Up(t, testbed.Config{Servers: 2})
	echoUDP(t, bed)
	s := overUDP(bed, kit.Settings(t, "hunt:static:1000"))
	idle := func(f *topo.FlowTable) { f.Idle = time.Second }
	lb, agent := s.LB, s.Agent
	s.LB = func(l *topo.LB) { lb(l); idle(&l.Flows) }
	s.Agent = func(n *testbed.Node, a *topo.Agent) { agent(n, a); idle(&a.Flows) }
	farm := kit.Start(t, bed, s)
	f := openUDP(t, bed, bed.VIP, flows)
	kept := func(nodes ...*testbed.Node) func() uint64 {
		return func() (sum uint64) {
			for _, n := range nodes {
				sum += kit.Status(t, farm, n).Flows
			}
			return sum
		}
	}
	for what, nodes := range map[string][]*testbed.Node{"the LB": bed.LBs, "the agents": bed.Servers} {
		// A sweep may come late: the flows speak on until it has counted them.
		kit.Eventually(t, what+" keep the flows", func() bool {
			kit.Alive(t, "while in use", f)
			return kept(nodes...)() == flows
		})
	}
	kit.EventuallyIs(t, "flows at the LB", 0, kept(bed.LBs...))
	kit.EventuallyIs(t, "flows at the agents", 0, kept(bed.Servers...))
	before := kit.Counter(t, farm, "offer_datagram", bed.LBs[0])
	kit.Alive(t, "after silence", f)
	if n := kit.Counter(t, farm, "offer_datagram", bed.LBs[0]) - before; n != flows {
		t.Errorf("%d datagrams offered after silence, want %d", n, flows)
	}
}

// TestUDPWithoutAnswer: a service that only listens is for `single`, whose flows
// stay together without a word from a server.
func TestUDPWithoutAnswer(t *testing.T) {
	const flows, each = 40, 5
	bed := kit.Up(t, testbed.Config{Servers: 3})
	heard := make(chan [2]string, flows*each)
	for _, n := range bed.Servers {
		c := listenUDP(t, n, bed.VIP)
		go func() {
			buffer := make([]byte, 100)
			for {
				k, _, err := c.ReadFrom(buffer)
				if err != nil {
					return // closed
				}
				heard <- [2]string{string(buffer[:k]), n.Name}
			}
		}()
	}
	farm := kit.Start(t, bed, overUDP(bed, kit.Settings(t, "single")))
	for i := range flows {
		c := dialUDP(t, bed, bed.VIP)
		for range each {
			fmt.Fprintf(c, "%d", i)
		}
	}
	at, names := map[string]string{}, map[string]bool{}
	for range flows * each {
		select {
		case h := <-heard:
			if was, known := at[h[0]]; known && was != h[1] {
				t.Errorf("flow %s arrived at %s and %s", h[0], was, h[1])
			}
			at[h[0]] = h[1]
			names[h[1]] = true
		case <-time.After(kit.Within):
			t.Fatal("a datagram is missing")
		}
	}
	if len(at) != flows || len(names) != 3 {
		t.Errorf("%d flows of %d at %v", len(at), flows, names)
	}
	if n := kit.Counter(t, farm, "deliver", bed.LBs[0]) + kit.Counter(t, farm, "steer", bed.LBs[0]); n != flows*each {
		t.Errorf("%d datagrams delivered, want %d", n, flows*each)
	}
}

// TestUDPWithoutListener: the client gets the error from the VIP, as if it had asked a
// server (RFC 4443 §3.1, RFC 1122 §4.1.3.1).
func TestUDPWithoutListener(t *testing.T) {
	for _, policy := range []string{"hunt:static:0", "single"} {
		bed := kit.Up(t, testbed.Config{Servers: 3})
		farm := kit.Start(t, bed, overUDP(bed, kit.Settings(t, policy)))
		for vip := range kit.Families(bed) {
			refusedUDP(t, dialUDP(t, bed, vip))
		}
		if policy != "single" {
			wantAskedAll(t, farm, 2)
		}
	}
}

// refusedUDP sends a datagram and wants the error for a missing listener. The kernel
// reports only an error that came from the address it sent to.
func refusedUDP(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetDeadline(time.Now().Add(kit.Within))
	if _, err := c.Write([]byte("listener?")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 100)); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%d bytes, %v; want %v", n, err, unix.ECONNREFUSED)
	}
}

// wantAskedAll: each flow's two candidates had no listener, and the third server
// neither; no server refused before that.
func wantAskedAll(t *testing.T, farm *farmrun.Farm, flows uint64) {
	t.Helper()
	lb, servers := farm.Bed.LBs, farm.Bed.Servers
	for _, c := range []struct {
		name  string
		nodes []*testbed.Node
	}{{"pass_on_no_listener", servers}, {"give_back_no_listener", servers}, {"offer_returned", lb}, {"refuse_no_listener", servers}} {
		if n := kit.Counter(t, farm, c.name, c.nodes...); n != flows {
			t.Errorf("%s: %d, want %d", c.name, n, flows)
		}
	}
}
