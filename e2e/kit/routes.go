package kit

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/wire"
)

func Announce(t *testing.T, bed *testbed.Bed, lbs ...*testbed.Node) {
	t.Helper()
	if err := bed.Announce(lbs...); err != nil {
		t.Fatal(err)
	}
}

// Hold opens HTTP connections to the service, which end with the test, and makes
// a request on each.
func Hold(t *testing.T, bed *testbed.Bed, network string, to netip.AddrPort, n int) []net.Conn {
	t.Helper()
	var conns []net.Conn
	for range n {
		c, err := bed.Client.DialContext(t.Context(), network, to.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c)
	}
	AskAll(t, conns)
	return conns
}

// AskAll makes one more request on each connection.
func AskAll(t *testing.T, conns []net.Conn) {
	t.Helper()
	for _, c := range conns {
		Get(t, c, "/bytes/1000")
	}
}

// wantNoStray: no packet reached a stack that had to reset it.
func WantNoStray(t *testing.T, farm *farmrun.Farm) {
	t.Helper()
	for _, name := range []string{"unowned", "give_back_not_mine"} {
		if n := Counter(t, farm, name, farm.Bed.Servers...); n > 0 {
			t.Errorf("%d packets %s", n, name)
		}
	}
}

// WantVia follows every packet from the LBs through all transits to a server.
func (w *Recorded) WantVia(t *testing.T, policy string) {
	t.Helper()
	functions, packets := map[wire.Function]int{}, 0
	for _, lb := range w.Bed.LBs {
		for _, f := range w.On(lb, false) {
			if !f.Encapsulated() {
				continue
			}
			packets++
			way := f.visits()
			for i, n := range w.Bed.Transits {
				if len(way) <= len(w.Bed.Transits) || way[i] != n.SID {
					t.Fatalf("%v left %s by %v", f.TCP, lb.Name, way)
				}
			}
			functions[Function(way[len(w.Bed.Transits)])]++
		}
	}
	for i, n := range w.Bed.Transits {
		came, left := w.On(n, true), w.On(n, false)
		if len(came) != packets || len(left) != packets {
			t.Errorf("of %d packets %d came to %s and %d left it", packets, len(came), n.Name, len(left))
		}
		for _, f := range left {
			if i+1 < len(w.Bed.Transits) && f.Ip.Destination != w.Bed.Transits[i+1].SID {
				t.Errorf("%v left %s for %v", f.TCP, n.Name, f.Ip.Destination)
			}
		}
	}
	w.wantServed(t, packets)
	want := []wire.Function{wire.ConnectAvail, wire.AckStickiness, wire.RecoverStickiness}
	if policy == "single" {
		want = []wire.Function{wire.Deliver}
	}
	for _, fn := range want {
		if functions[fn] == 0 {
			t.Errorf("nothing went by %s: %v", fn, functions)
		}
	}
	if len(functions) != len(want) {
		t.Errorf("functions %v, want %v", functions, want)
	}
}

// wantServed: what comes to servers left a transit or another server; nothing
// came straight from an LB.
func (w *Recorded) wantServed(t *testing.T, packets int) {
	t.Helper()
	taken := 0
	for _, n := range w.Bed.Servers {
		in, on := 0, 0
		for _, f := range w.On(n, true) {
			if f.Encapsulated() {
				in++
			}
		}
		for _, f := range w.On(n, false) {
			if f.Encapsulated() && f.TCP.To.Addr() == w.Bed.VIP {
				on++
			}
		}
		taken += in - on
	}
	if taken != packets {
		t.Errorf("servers kept %d packets of %d", taken, packets)
	}
}

// visits are the segments of a packet as it leaves an LB, without what an
// inserted list has more: the sender and the packet's own destination.
func (f *Frame) visits() []netip.Addr {
	if f.IsInserted() {
		return f.List[1 : len(f.List)-1]
	}
	return f.way()
}

// OneSegment joins the links of nodes to one at the router, a bridge with the router's addresses, and gives the LB a route
// to each server by the server's own address on it, beside its default routes.
func OneSegment(t *testing.T, bed *testbed.Bed) {
	t.Helper()
	lb, router := bed.LBs[0], bed.Router
	In(t, router, "ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
	for _, n := range append([]*testbed.Node{lb}, bed.Servers...) {
		In(t, router, "ip", "link", "set", "dev", n.Link, "master", "br0")
	}
	In(t, router, "ip", "link", "set", "br0", "up")
	for _, n := range append([]*testbed.Node{lb}, bed.Servers...) {
		for family, own := range map[string]netip.Addr{"-6": n.Addr, "-4": n.Addr4} {
			bits, flags := "64", []string{"nodad"}
			if own.Is4() {
				bits, flags = "24", nil
			}
			gateway := own.Prev().String() // the router's
			routes := In(t, router, "ip", family, "route", "show", "dev", n.Link, "via", own.String())
			In(t, router, "ip", "addr", "del", gateway+"/"+bits, "dev", n.Link)
			In(t, router, "ip", append([]string{"addr", "add", gateway + "/" + bits, "dev", "br0"}, flags...)...)
			for _, r := range strings.Split(strings.TrimSpace(routes), "\n") {
				if dst, _, _ := strings.Cut(r, " "); dst != "" {
					In(t, router, "ip", family, "route", "replace", dst, "via", own.String(), "dev", "br0")
				}
			}
		}
	}
	for _, s := range bed.Servers {
		In(t, lb, "ip", "addr", "add", s.Addr.Next().String()+"/64", "dev", "eth0", "nodad") // it is on the server's link, too
		In(t, lb, "ip", "-6", "route", "replace", s.Locator.String(), "via", s.Addr.String(), "dev", "eth0")
	}
}

// KernelSRv6 lets a node's own kernel answer SIDs.
func KernelSRv6(t *testing.T, n *testbed.Node, sid netip.Prefix, action ...string) {
	t.Helper()
	for _, path := range []string{"conf/all/seg6_enabled", "conf/eth0/seg6_enabled", "conf/all/forwarding"} {
		SetSysctl(t, n, "net/ipv6/"+path, "1")
	}
	args := append([]string{"-6", "route", "add", sid.String(), "encap", "seg6local", "action"}, action...)
	In(t, n, "ip", append(args, "dev", "eth0")...)
}

// DeliverSID is the SID at which a node decapsulates.
func DeliverSID(n *testbed.Node) netip.Prefix {
	return netip.PrefixFrom(wire.SID{Locator: n.Locator, Function: wire.Deliver}.Addr(), 128)
}
