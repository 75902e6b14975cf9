package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/lab/testbed"
)

// oneSegment joins the links of nodes to one at the router, a bridge with the router's addresses, and gives the LB a route
// to each server by the server's own address on it, beside its default routes.
func oneSegment(t *testing.T, bed *testbed.Bed) {
	t.Helper()
	lb, router := bed.LBs[0], bed.Router
	in(t, router, "ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
	for _, n := range append([]*testbed.Node{lb}, bed.Servers...) {
		in(t, router, "ip", "link", "set", "dev", n.Link, "master", "br0")
	}
	in(t, router, "ip", "link", "set", "br0", "up")
	for _, n := range append([]*testbed.Node{lb}, bed.Servers...) {
		for family, own := range map[string]netip.Addr{"-6": n.Addr, "-4": n.Addr4} {
			bits, flags := "64", []string{"nodad"}
			if own.Is4() {
				bits, flags = "24", nil
			}
			gateway := own.Prev().String() // the router's
			routes := in(t, router, "ip", family, "route", "show", "dev", n.Link, "via", own.String())
			in(t, router, "ip", "addr", "del", gateway+"/"+bits, "dev", n.Link)
			in(t, router, "ip", append([]string{"addr", "add", gateway + "/" + bits, "dev", "br0"}, flags...)...)
			for _, r := range strings.Split(strings.TrimSpace(routes), "\n") {
				if dst, _, _ := strings.Cut(r, " "); dst != "" {
					in(t, router, "ip", family, "route", "replace", dst, "via", own.String(), "dev", "br0")
				}
			}
		}
	}
	for _, s := range bed.Servers {
		in(t, lb, "ip", "addr", "add", s.Addr.Next().String()+"/64", "dev", "eth0", "nodad") // it is on the server's link, too
		in(t, lb, "ip", "-6", "route", "replace", s.Locator.String(), "via", s.Addr.String(), "dev", "eth0")
	}
}

// TestLinkFlaps: servers are gateways of their own on one segment with the LB, which has a default route beside. Its
// link goes down and comes back: no packet lacks a next hop, and every request is answered.
func TestLinkFlaps(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 3})
	serve(t, bed)
	farm := start(t, bed, settings(t, "hunt:static:4"))
	lb := bed.LBs[0]
	oneSegment(t, bed)
	eventually(t, "the servers are their own next hops", func() bool {
		for _, s := range bed.Servers {
			if n := in(t, lb, "ip", "-6", "neigh", "show", s.Addr.String(), "dev", "eth0"); !strings.Contains(n, "managed") {
				return false
			}
		}
		return len(status(t, farm, lb).NoNextHop) == 0
	})
	before := counter(t, farm, "drop_no_next_hop", lb)
	for flap := range 3 {
		in(t, bed.Router, "ip", "link", "set", lb.Link, "down")
		time.Sleep(100 * time.Millisecond)
		in(t, bed.Router, "ip", "link", "set", lb.Link, "up")
		eventually(t, fmt.Sprintf("flap %d: the LB's link is up", flap), func() bool {
			return strings.Contains(in(t, lb, "ip", "link", "show", "eth0"), "LOWER_UP")
		})
		for i := range 20 {
			if _, _, err := try(t, bed.Client, "curl", "-sS", "-o", "/dev/null", "-g", "--max-time", "20", url); err != nil {
				t.Errorf("flap %d: request %d: %v", flap, i, err)
			}
		}
	}
	if n := counter(t, farm, "drop_no_next_hop", lb) - before; n > 0 {
		t.Errorf("%d packets had no next hop: %v", n, status(t, farm, lb).NoNextHop)
	}
}

// TestAgentsLinkFlaps: a server's link goes down and comes back; its agent signals to the LB by a gateway of the LB's own
// on one segment, beside a default route. No signal lacks a next hop, and every request is answered.
func TestAgentsLinkFlaps(t *testing.T) {
	bed := up(t, testbed.Config{Servers: 1})
	serve(t, bed)
	farm := start(t, bed, settings(t, "hunt:static:4"))
	lb, server := bed.LBs[0], bed.Servers[0]
	oneSegment(t, bed)
	in(t, server, "ip", "addr", "add", lb.Addr.Next().String()+"/64", "dev", "eth0", "nodad")
	in(t, server, "ip", "-6", "route", "replace", lb.Locator.String(), "via", lb.Addr.String(), "dev", "eth0")
	for range 5 {
		in(t, bed.Client, "curl", "-sS", "-o", "/dev/null", "-g", "--max-time", "20", url)
	}
	eventually(t, "the LB is its own next hop", func() bool {
		return strings.Contains(in(t, server, "ip", "-6", "neigh", "show", lb.Addr.String(), "dev", "eth0"), "managed")
	})
	before := counter(t, farm, "drop_no_next_hop", lb, server)
	for flap := range 3 {
		in(t, bed.Router, "ip", "link", "set", server.Link, "down")
		for range 15 { // the kernel has forgotten the LB
			time.Sleep(100 * time.Millisecond)
			if lacks := status(t, farm, server).NoNextHop; len(lacks) > 0 {
				t.Fatalf("flap %d: the agent has no next hop to %v", flap, lacks)
			}
		}
		in(t, bed.Router, "ip", "link", "set", server.Link, "up")
		eventually(t, fmt.Sprintf("flap %d: the server's link is up", flap), func() bool {
			return strings.Contains(in(t, server, "ip", "link", "show", "eth0"), "LOWER_UP")
		})
		for i := range 20 {
			if _, _, err := try(t, bed.Client, "curl", "-sS", "-o", "/dev/null", "-g", "--max-time", "20", url); err != nil {
				t.Errorf("flap %d: request %d: %v", flap, i, err)
			}
		}
	}
	if n := counter(t, farm, "drop_no_next_hop", lb, server) - before; n > 0 {
		t.Errorf("%d packets had no next hop: %v", n, status(t, farm, server).NoNextHop)
	}
}

// TestEdgeLinkFlaps: the link between an edge LB and a node loses its carrier at either end, beside default routes by
// other links. Neither end loses its next hop, so flows stay at their node, with the addresses that its functions gave
// them.
func TestEdgeLinkFlaps(t *testing.T) {
	b := newSpaces(t)
	dir := t.TempDir()
	inside(t, b.lb, "ip", "route", "add", "default", "via", "198.18.0.2", "dev", "world")
	var logs []string
	for i, n := range b.node {
		inside(t, n, "ip", "route", "add", "default", "via", fmt.Sprintf("198.19.%d.2", i), "dev", "world")
		at := filepath.Join(dir, n.Name+".yaml")
		must(t, os.WriteFile(at, []byte(nodeFile(dir, i)), 0o600))
		runEdge(t, n, "nf", at, filepath.Join(dir, n.Name+".sock"))
		logs = append(logs, at+".log")
	}
	at, socket := filepath.Join(dir, "edge.yaml"), filepath.Join(dir, "edge.sock")
	must(t, os.WriteFile(at, []byte(edgeFile(dir, 1, 1)), 0o600))
	runEdge(t, b.lb, "edge", at, socket)
	logs = append(logs, at+".log")
	senders(t, b.world)
	var flows []net.Conn
	for i := range 12 {
		service := []int{edgeCost, edgeNAT}[i%2]
		must(t, b.client.Do(func() error {
			c, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeClient[service], 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeWorld, 7)))
			flows = append(flows, c)
			return err
		}))
		defer flows[i].Close()
	}
	ask := func() (seen []string) {
		for _, c := range flows {
			seen = append(seen, senderOf(t, c))
		}
		return seen
	}
	first := ask()
	for flap := range 4 {
		n := b.node[flap/2]
		down, device, other, beyond := b.lb, n.Name, n, "lb"
		if flap%2 == 1 {
			down, device, other, beyond = n, "lb", b.lb, n.Name
		}
		inside(t, down, "ip", "link", "set", device, "down")
		time.Sleep(100 * time.Millisecond)
		inside(t, down, "ip", "link", "set", device, "up")
		eventually(t, fmt.Sprintf("flap %d: the link is up", flap), func() bool {
			return strings.Contains(inside(t, other, "ip", "link", "show", beyond), "LOWER_UP")
		})
		if again := ask(); !slices.Equal(again, first) {
			t.Errorf("flap %d: the world sees %v, before %v", flap, again, first)
		}
	}
	if n := edgeStatus(t, socket).Counters["flow_moved"]; n > 0 {
		t.Errorf("%d flows moved to another node", n)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		must(t, err)
		if strings.Contains(string(text), "reached=false") {
			t.Errorf("a next hop was lost:\n%s", text)
		}
	}
}

// senders answers each datagram in the world with the address that it came from.
func senders(t *testing.T, world *testbed.Node) {
	t.Helper()
	var conn *net.UDPConn
	must(t, world.Do(func() (err error) {
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeWorld, 7)))
		return err
	}))
	t.Cleanup(func() { conn.Close() })
	go func() {
		for b := make([]byte, 100); ; {
			_, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort([]byte(from.String()), from)
		}
	}()
}

// senderOf asks until there is an answer.
func senderOf(t *testing.T, c net.Conn) string {
	t.Helper()
	b := make([]byte, 100)
	for end := time.Now().Add(within); time.Now().Before(end); {
		_, _ = c.Write([]byte("who"))
		_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if n, err := c.Read(b); err == nil {
			return string(b[:n])
		}
	}
	t.Fatal("no answer")
	return ""
}
