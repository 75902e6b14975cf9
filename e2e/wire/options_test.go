package wire

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
	"proffer/topo"
	"proffer/wire"
)

// TestEveryOptionLength: a SYN has 0 to 40 bytes of options (RFC 9293 §3.1); with
// every length it reaches a server unchanged, whose answer reaches the client.
func TestEveryOptionLength(t *testing.T) {
	const first, most = 40000, 40
	for _, wireOf := range []topo.Wire{topo.Encap, topo.Insert} {
		bed := kit.Up(t, testbed.Config{Servers: 3})
		kit.Serve(t, bed)
		farm := kit.Start(t, bed, kit.Carried(kit.Settings(t, "hunt:static:0"), func(svc *topo.Service) { svc.Wire = wireOf }))
		for _, n := range bed.Servers { // one answer each
			kit.SetSysctl(t, n, "net/ipv4/tcp_synack_retries", "0")
		}
		var syns [][]byte
		for length := range most + 1 {
			syns = append(syns, optionSYN(bed, first+length, 1000*length, length))
		}
		c := kit.Record(t, bed)
		kit.SendRaw(t, bed, syns...)
		kit.Eventually(t, "all are offered and answered", func() bool {
			return kit.Counter(t, farm, "stickiness_created", bed.LBs[0]) == uint64(len(syns))
		})
		w := kit.Recorded{Bed: bed, Frames: c.Stop(t)}
		kit.TakeOut(w.Frames)
		if pairs := w.Forwarded(t); len(pairs) != len(syns) {
			t.Errorf("%d packets through the LB for %d SYNs", len(pairs), len(syns))
		}
		answered := map[int]bool{}
		for _, f := range w.On(bed.Client, true) {
			length := int(f.TCP.To.Port()) - first
			answered[length] = f.TCP.Has(wire.SYN|wire.ACK) && f.Acknowledges() == uint32(1000*length+1)
		}
		for length := range most + 1 {
			if !answered[length] {
				t.Errorf("%s: a SYN with %d bytes of options was not answered", wireOf, length)
			}
		}
	}
}

// optionSYN is a SYN from the unused address with so many bytes of options: what the server
// has no use for, in an option of its own (RFC 6994), or padding.
func optionSYN(bed *testbed.Bed, port, seq, length int) []byte {
	const nop, experiment1, header = 1, 253, 2
	options := bytes.Repeat([]byte{nop}, length)
	if length >= header && length%2 == 0 {
		clear(options)
		options[0], options[1] = experiment1, uint8(length)
	}
	options = append(options, make([]byte, -length&3)...)
	t := wire.TCP{From: uint16(port), To: testbed.Port, Seq: uint32(seq), Flags: wire.SYN, Options: options}
	return wire.IP{Source: kit.Unused, Destination: bed.VIP, HopLimit: wire.DefaultHopLimit}.TCP(t, nil)
}

const (
	optionMSS        = 2
	optionWindow     = 3 // RFC 7323
	optionSACK       = 4 // RFC 2018
	optionTimestamps = 8 // RFC 7323
)

// TestOptionsArrive: the client gets its server's TCP options unchanged, but for
// the MSS, and uses it.
func TestOptionsArrive(t *testing.T) {
	for _, wireOf := range []topo.Wire{topo.Encap, topo.Insert} {
		bed := kit.Up(t, testbed.Config{Servers: 2})
		kit.Serve(t, bed)
		kit.Start(t, bed, kit.Carried(kit.Settings(t, "hunt:static:1000"), func(svc *topo.Service) { svc.Wire = wireOf }))
		c := kit.Record(t, bed)
		conn := kit.Dial(t, bed)
		kit.Get(t, conn, "/bytes/100000")
		wantUsed(t, conn)
		w := kit.Recorded{Bed: bed, Frames: c.Stop(t)}
		kit.TakeOut(w.Frames)
		said := w.SynACKOptions(bed.Servers...)
		heard := w.SynACKOptions(bed.Client)
		if len(said) != 1 || len(heard) != 1 {
			t.Fatalf("%d SYN-ACKs left servers and %d came to the client", len(said), len(heard))
		}
		wantSameOptions(t, said[0], heard[0])
	}
}

// wantUsed: what both ends agreed on, as the client's kernel sees it.
func wantUsed(t *testing.T, c syscall.Conn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	outer := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if outer != nil || err != nil {
		t.Fatal(outer, err)
	}
	const all = 1 | 2 | 4 // TCPI_OPT_TIMESTAMPS, _SACK, _WSCALE (linux/tcp.h)
	if info.Options&all != all {
		t.Errorf("the client uses the options %#x, want %#x", info.Options, all)
	}
}

func wantSameOptions(t *testing.T, said, heard map[uint8]string) {
	t.Helper()
	for _, kind := range []uint8{optionMSS, optionWindow, optionSACK, optionTimestamps} {
		if _, ok := said[kind]; !ok {
			t.Fatalf("the server did not say option %d: %q", kind, said)
		}
	}
	if heard[optionMSS] > said[optionMSS] { // in network order
		t.Errorf("an MSS of % x became % x", said[optionMSS], heard[optionMSS])
	}
	delete(said, optionMSS)
	delete(heard, optionMSS)
	if !maps.Equal(said, heard) {
		t.Errorf("the server sent %q, the client received %q", said, heard)
	}
}

// TestFastOpen: a client that was here before sends its request in the SYN, and a
// server may answer before the handshake is over (RFC 7413).
func TestFastOpen(t *testing.T) {
	const key = "01234567-89abcdef-01234567-89abcdef" // one for all, as a farm needs it
	for _, c := range []struct {
		policy string
		wire   topo.Wire
	}{{"hunt:static:0", topo.Encap}, {"hunt:static:1000", topo.Insert}, {"single", topo.Encap}} {
		t.Run(fmt.Sprintf("%s %s", c.policy, c.wire), func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 3})
			for _, n := range bed.Servers {
				const serverForAll = 2 | 0x400 // TFO_SERVER_ENABLE, TFO_SERVER_WO_SOCKOPT1
				kit.SetSysctl(t, n, "net/ipv4/tcp_fastopen", fmt.Sprint(serverForAll))
				kit.SetSysctl(t, n, "net/ipv4/tcp_fastopen_key", key)
			}
			kit.SetSysctl(t, bed.Client, "net/ipv4/tcp_fastopen", "1")
			kit.Serve(t, bed)
			farm := kit.Start(t, bed, kit.Carried(kit.Settings(t, c.policy), func(svc *topo.Service) { svc.Wire = c.wire }))
			wantFastOpen(t, farm)
		})
	}
}

// wantFastOpen makes connections whose first gets the cookie and whose others use
// it; each answer is longer than a window before the handshake is over.
func wantFastOpen(t *testing.T, farm *farmrun.Farm) {
	t.Helper()
	const conns, size = 12, 100_000
	bed := farm.Bed
	want, err := io.ReadAll(responder.Bytes(size))
	if err != nil {
		t.Fatal(err)
	}
	for range conns {
		body := kit.In(t, bed.Client, "curl", "-sS", "--fail", "--max-time", "60", "--tcp-fastopen", fmt.Sprintf("%s/bytes/%d", kit.URL, size))
		if body != string(want) {
			t.Errorf("%d bytes, not those of /bytes/%d", len(body), size)
		}
	}
	taken := 0
	for _, n := range bed.Servers {
		taken += tcpExt(t, n, "TCPFastOpenPassive")
		if failed := tcpExt(t, n, "TCPFastOpenPassiveFail"); failed > 0 {
			t.Errorf("%s refused %d requests in a SYN", n.Name, failed)
		}
	}
	if used := tcpExt(t, bed.Client, "TCPFastOpenActive"); used != conns-1 || taken != conns-1 {
		t.Errorf("the client opened %d connections with data, servers %d, want %d", used, taken, conns-1)
	}
}

// tcpExt reads one of the kernel's own counters in a node. The file has two lines
// a kind: names, then values in their order.
func tcpExt(t *testing.T, n *testbed.Node, name string) int {
	t.Helper()
	var names, values []string
	for line := range strings.Lines(kit.In(t, n, "grep", "^TcpExt:", "/proc/net/netstat")) {
		names, values = values, strings.Fields(line)
	}
	at := slices.Index(names, name)
	if at < 0 || at >= len(values) {
		t.Fatalf("the kernel does not count %s", name)
	}
	count, err := strconv.Atoi(values[at])
	if err != nil {
		t.Fatal(err)
	}
	return count
}
