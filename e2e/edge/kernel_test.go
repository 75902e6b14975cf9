package edge

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

var (
	edgeWorld  = netip.MustParseAddr("198.18.0.2")
	edgeClient = map[int]netip.Addr{kit.EdgeCost: netip.MustParseAddr("10.1.0.2"), kit.EdgeNAT: netip.MustParseAddr("10.2.0.2")}
)

// newEdge builds it with its planes. Everything ends with the test.
func newEdge(t *testing.T) *kit.EdgeBed {
	t.Helper()
	b := kit.NewSpaces(t)
	b.Load(t)
	return b
}

// TestEdgeBothDirections: TCP and UDP go through the nodes, with and without NAT, and every packet of
// a flow, in both directions, meets the same core of the same node. NAT's port is of that core.
func TestEdgeBothDirections(t *testing.T) {
	b := newEdge(t)
	served := make(chan netip.AddrPort, 1)
	listener, err := b.World.Listen("tcp", netip.AddrPortFrom(edgeWorld, 80).String())
	kit.Must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served <- netip.MustParseAddrPort(r.RemoteAddr)
		w.Write(make([]byte, 100_000))
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	asked := edgeEchoes(t, b.World)
	for _, service := range []int{kit.EdgeCost, kit.EdgeNAT} {
		met := map[int]int{}
		for range 12 {
			instance := b.InstanceOf(t, service, 20, func() {
				size := kit.Inside(t, b.Client, "curl", "-sS", "--max-time", "60", "--interface", edgeClient[service].String(), "-o", "/dev/null", "-w", "%{size_download}", "http://"+edgeWorld.String()+"/")
				if size != "100000" {
					t.Errorf("curl got %s bytes", size)
				}
			})
			checkSource(t, service, instance, <-served)
			met[instance]++
			instance = b.InstanceOf(t, service, 20, func() { converse(t, b.Client, service) })
			checkSource(t, service, instance, <-asked)
			met[instance]++
		}
		if len(met) < 3 {
			t.Errorf("24 flows met the instances %v alone", met)
		}
	}
	kit.Must(t, clean(b.LB.Counters()))
	for _, n := range b.Node {
		kit.Must(t, clean(n.Counters()))
	}
}

// checkSource: the world sees the client's own address, or with NAT the public one and a port of the
// instance's core.
func checkSource(t *testing.T, service, instance int, from netip.AddrPort) {
	t.Helper()
	want := edgeClient[service]
	if service == kit.EdgeNAT {
		want = kit.EdgePublic
		low := 2048 + instance/kit.EdgeCores*kit.EdgeSpacing + instance%kit.EdgeCores*kit.EdgePorts
		if port := int(from.Port()); port < low || port >= low+kit.EdgePorts {
			t.Errorf("instance %d gave port %d", instance, port)
		}
	}
	if from.Addr().Unmap() != want {
		t.Errorf("the world sees %v, want %v", from, want)
	}
}

// converse sends ten datagrams on one socket and waits for the answer to each.
func converse(t *testing.T, client *testbed.Node, service int) {
	t.Helper()
	var conn net.Conn
	kit.Must(t, client.Do(func() (err error) {
		from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeClient[service], 0))
		conn, err = net.DialUDP("udp4", from, net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeWorld, 7)))
		return err
	}))
	defer conn.Close()
	answer := make([]byte, 100)
	for i := range 10 {
		question := fmt.Sprint("question ", i)
		_, err := io.WriteString(conn, question)
		kit.Must(t, err)
		kit.Must(t, conn.SetReadDeadline(time.Now().Add(kit.Within)))
		n, err := conn.Read(answer)
		kit.Must(t, err)
		if string(answer[:n]) != question {
			t.Errorf("the answer to %q is %q", question, answer[:n])
		}
	}
}

// edgeEchoes answers datagrams in the world, and reports the sender of the first of each ten.
func edgeEchoes(t *testing.T, world *testbed.Node) <-chan netip.AddrPort {
	t.Helper()
	var conn *net.UDPConn
	kit.Must(t, world.Do(func() (err error) {
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(edgeWorld, 7)))
		return err
	}))
	t.Cleanup(func() { conn.Close() })
	asked := make(chan netip.AddrPort, 1)
	go func() {
		b := make([]byte, 100)
		for i := 0; ; i++ {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if i%10 == 0 {
				asked <- from
			}
			conn.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	return asked
}

// clean: no packet was dropped.
func clean(all []dataplane.Counter, err error) error {
	for _, c := range all {
		if strings.HasPrefix(c.Name, "drop_") && c.Value > 0 {
			err = errors.Join(err, fmt.Errorf("%d packets are %s", c.Value, c.Name))
		}
	}
	return err
}
