package edge

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

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// TestEdgeLinkFlaps: the link between an edge LB and a node loses its carrier at either end, beside default routes by
// other links. Neither end loses its next hop, so flows stay at their node, with the addresses that its functions gave
// them.
func TestEdgeLinkFlaps(t *testing.T) {
	b := kit.NewSpaces(t)
	dir := t.TempDir()
	kit.Inside(t, b.Balancer, "ip", "route", "add", "default", "via", "198.18.0.2", "dev", "world")
	var logs []string
	for i, n := range b.Nodes {
		kit.Inside(t, n, "ip", "route", "add", "default", "via", fmt.Sprintf("198.19.%d.2", i), "dev", "world")
		at := filepath.Join(dir, n.Name+".yaml")
		kit.Must(t, os.WriteFile(at, []byte(kit.NodeFile(dir, i)), 0o600))
		runEdge(t, n, "nf", at, filepath.Join(dir, n.Name+".sock"))
		logs = append(logs, at+".log")
	}
	at, socket := filepath.Join(dir, "edge.yaml"), filepath.Join(dir, "edge.sock")
	kit.Must(t, os.WriteFile(at, []byte(kit.EdgeFile(dir, 1, 1)), 0o600))
	runEdge(t, b.Balancer, "edge", at, socket)
	logs = append(logs, at+".log")
	senders(t, b.World)
	var flows []net.Conn
	for i := range 12 {
		service := []int{kit.EdgeCost, kit.EdgeNAT}[i%2]
		kit.Must(t, b.Client.Do(func() error {
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
		n := b.Nodes[flap/2]
		down, device, other, beyond := b.Balancer, n.Name, n, "lb"
		if flap%2 == 1 {
			down, device, other, beyond = n, "lb", b.Balancer, n.Name
		}
		kit.Inside(t, down, "ip", "link", "set", device, "down")
		time.Sleep(100 * time.Millisecond)
		kit.Inside(t, down, "ip", "link", "set", device, "up")
		kit.Eventually(t, fmt.Sprintf("flap %d: the link is up", flap), func() bool {
			return strings.Contains(kit.Inside(t, other, "ip", "link", "show", beyond), "LOWER_UP")
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
		kit.Must(t, err)
		if strings.Contains(string(text), "reached=false") {
			t.Errorf("a next hop was lost:\n%s", text)
		}
	}
}

// senders answers each datagram in the world with the address that it came from.
func senders(t *testing.T, world *testbed.Node) {
	t.Helper()
	var conn *net.UDPConn
	kit.Must(t, world.Do(func() (err error) {
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
	for end := time.Now().Add(kit.Within); time.Now().Before(end); {
		_, _ = c.Write([]byte("who"))
		_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if n, err := c.Read(b); err == nil {
			return string(b[:n])
		}
	}
	t.Fatal("no answer")
	return ""
}
