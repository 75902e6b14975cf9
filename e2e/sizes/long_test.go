package sizes

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/topo"
)

// withoutDF makes a node send IPv4 without DF, and use the whole MTU whatever it learns.
func withoutDF(t *testing.T, n *testbed.Node) {
	t.Helper()
	err := n.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_no_pmtu_disc", []byte("1"), 0o644) })
	if err != nil {
		t.Fatal(err)
	}
}

// TestClientWithoutDF: docs/failures.md, IPv4 without DF: a client that forbids no fragments and learns no
// MTU uploads over TCP, and each of its longest datagrams is answered, the first, too.
func TestClientWithoutDF(t *testing.T) {
	const streams, size = 2, 3_000_000
	for _, policy := range []string{"single", "stateless"} {
		t.Run("TCP, "+policy, func(t *testing.T) { // answers pass the LB by, so that no MSS is lowered
			bed := kit.Up(t, testbed.Config{Servers: 3})
			withoutDF(t, bed.Client)
			kit.Bulks(t, bed, bed.Servers...)
			s := kit.Settings(t, policy)
			kit.FamilyOf(&s, bed.VIP4)
			farm := kit.Start(t, bed, s)
			up := kit.Begin(t, bed, bed.VIP4, true, 20000, streams)
			kit.Move(t, "upwards", up, size)
			kit.Finish(t, "upwards", up)
			if n := kit.Counter(t, farm, "sent_in_fragments", bed.LBs[0]); n < streams*size/1500 {
				t.Errorf("%d packets went in fragments", n)
			}
			if n := kit.Counter(t, farm, "too_big", bed.LBs[0]); n > 0 {
				t.Errorf("%d packets were answered with fragmentation needed", n)
			}
		})
	}
	for _, policy := range []string{"hunt:always", "single"} {
		for _, first := range []string{"", "hello"} { // before the long datagrams
			t.Run(fmt.Sprintf("UDP, %s %q", policy, first), func(t *testing.T) { testLongDatagrams(t, policy, first) })
		}
	}
}

// TestDatagramFitsNoList: datagrams without DF of an unknown flow that leave room for one segment,
// and not for a list, are answered.
func TestDatagramFitsNoList(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 3})
	s := kit.Settings(t, "hunt:always")
	datagrams(&s, bed.VIP4, topo.DropFragments)
	echoDatagrams(t, bed, bed.VIP4)
	farm := kit.Start(t, bed, s)
	sizes := []int{testbed.MTU - 64, testbed.MTU - 63, testbed.MTU - 41, testbed.MTU - 40, testbed.MTU - 39}
	for _, size := range sizes {
		c := speaker(t, bed, bed.ClientAddrs4[0], bed.VIP4)
		whatever(t, c)
		answered(t, c, strings.Repeat("x", size-20-8))
	}
	if n := kit.Counter(t, farm, "pass_long", bed.LBs[0]); n != 4 {
		t.Errorf("%d datagrams were left to the stack, want 4", n)
	}
}

func testLongDatagrams(t *testing.T, policy, first string) {
	const flows, each, longest = 8, 20, 1500 - 20 - 8
	bed := kit.Up(t, testbed.Config{Servers: 3})
	s := kit.Settings(t, policy)
	datagrams(&s, bed.VIP4, topo.DropFragments)
	echoDatagrams(t, bed, bed.VIP4)
	farm := kit.Start(t, bed, s)
	for range flows {
		c := speaker(t, bed, bed.ClientAddrs4[0], bed.VIP4)
		whatever(t, c)
		servers := map[string]bool{}
		if first != "" {
			servers[answerTo(t, c, first)] = true
		}
		for i := range each {
			text := fmt.Sprintf("%d %s", i, strings.Repeat("x", longest))[:longest]
			servers[answered(t, c, text)] = true
		}
		if len(servers) != 1 {
			t.Errorf("the datagrams of a flow met %v", servers)
		}
	}
	if n := kit.Counter(t, farm, "sent_in_fragments", bed.LBs[0]); n < flows*each {
		t.Errorf("%d packets went in fragments, want %d", n, flows*each)
	}
}

// whatever clears DF on a socket, which then ignores what routers report.
func whatever(t *testing.T, c *net.UDPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			if e := unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_INTERFACE); e != nil {
				t.Error(e)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// answered sends a datagram once and returns the server that answered it.
func answered(t *testing.T, c *net.UDPConn, text string) string {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 2*large)
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, err := c.Read(buffer)
	if err != nil {
		t.Fatalf("%d bytes are not answered: %v", len(text), err)
	}
	name, rest, _ := strings.Cut(string(buffer[:n]), " ")
	if rest != text {
		t.Errorf("%s answers %d bytes to %d", name, len(rest), len(text))
	}
	return name
}
