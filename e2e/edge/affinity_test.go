package edge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// spoken is a flow of the client with the world's server, which says in each answer from which port it
// was asked.
type spoken struct {
	conn net.Conn
	tcp  bool
	seq  uint32
	port uint16 // the public one
}

const wordBytes = 8 // of a question and of an answer: a number, and in answers the port

// answering serves both protocols in the world.
func answering(t *testing.T, world *testbed.Node) {
	t.Helper()
	serveWorld(t, world, 7, func(conn net.Conn) {
		for b := make([]byte, wordBytes); ; {
			if _, err := io.ReadFull(conn, b); err != nil {
				return
			}
			stamp(b, conn.RemoteAddr().(*net.TCPAddr).AddrPort())
			if _, err := conn.Write(b); err != nil {
				return
			}
		}
	}, func(at *net.UDPConn, b []byte, from netip.AddrPort) {
		if len(b) == wordBytes {
			stamp(b, from)
			at.WriteToUDPAddrPort(b, from)
		}
	})
}

// serveWorld serves a port of the world in both protocols: each connection, and each datagram before the
// next one.
func serveWorld(t *testing.T, world *testbed.Node, port uint16, conn func(net.Conn), datagram func(at *net.UDPConn, b []byte, from netip.AddrPort)) {
	t.Helper()
	at := netip.AddrPortFrom(edgeWorld, port)
	listener, err := world.Listen("tcp", at.String())
	kit.Must(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				conn(c)
			}()
		}
	}()
	var datagrams *net.UDPConn
	kit.Must(t, world.Do(func() (err error) {
		datagrams, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		return err
	}))
	t.Cleanup(func() { datagrams.Close() })
	go func() {
		b := make([]byte, 100)
		for {
			n, from, err := datagrams.ReadFromUDPAddrPort(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				datagram(datagrams, b[:n], from)
			}
		}
	}()
}

func stamp(b []byte, from netip.AddrPort) { binary.BigEndian.PutUint16(b[4:], from.Port()) }

// talk asks a question and waits for its answer, for a minute at most: segments and datagrams on their
// way through an LB that dies are lost. The public port stays what it was.
func (s *spoken) talk() error {
	s.seq++
	question := binary.BigEndian.AppendUint32(nil, s.seq)
	question = append(question, make([]byte, wordBytes-len(question))...)
	answer := make([]byte, wordBytes)
	again := time.Minute
	if !s.tcp {
		again = 500 * time.Millisecond
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := s.conn.Write(question); err != nil {
			return err
		}
		s.conn.SetReadDeadline(time.Now().Add(again))
		var err error
		for err == nil {
			if _, err = io.ReadFull(s.conn, answer); err == nil && binary.BigEndian.Uint32(answer) == s.seq {
				return s.from(binary.BigEndian.Uint16(answer[4:]))
			}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(deadline) {
			return err
		}
	}
}

// from notes the public port.
func (s *spoken) from(port uint16) error {
	if s.port != 0 && s.port != port {
		return fmt.Errorf("the public port was %d and is %d", s.port, port)
	}
	s.port = port
	return nil
}

// at is the number of the node that has the flow, by its public port.
func (s *spoken) at() int { return (int(s.port) - 2048) / (kit.EdgeCores * lbsPorts) }

// nextPort is the next local port of a flow of this process, below those that the kernel gives: no flow has the
// five-tuple of an earlier flow, of which an LB may still know that its node has died.
var nextPort atomic.Uint32

func init() { nextPort.Store(10_000) }

// dialFresh opens a flow to a port of the world, from a local port that no flow of the test had. Talkers are processes of
// their own, and take ports that the kernel gives.
func dialFresh(tcp bool, port uint16) (net.Conn, error) {
	to := netip.AddrPortFrom(edgeWorld, port)
	local := 0
	if os.Getenv(talkerEnv) == "" {
		local = int(nextPort.Add(1))
	}
	if tcp {
		d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{Port: local}}
		return d.Dial("tcp4", to.String())
	}
	return net.DialUDP("udp4", &net.UDPAddr{Port: local}, net.UDPAddrFromAddrPort(to))
}

// beginFlows opens as many flows of each protocol, each with a first answer. do calls a function in the
// client's namespace.
func beginFlows(do func(func() error) error, each int) (all []*spoken, err error) {
	all = make([]*spoken, 2*each)
	var wait sync.WaitGroup
	var next atomic.Int64
	var failed atomic.Value
	for range 32 {
		wait.Go(func() {
			err := do(func() error {
				for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
					s := &spoken{tcp: i%2 == 0}
					conn, err := dialFresh(s.tcp, 7)
					if err != nil {
						return err
					}
					s.conn, all[i] = conn, s
					if err := s.talk(); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				failed.Store(err)
			}
		})
	}
	wait.Wait()
	err, _ = failed.Load().(error)
	return all, err
}

// beginEach is beginFlows from a test.
func beginEach(t *testing.T, client *testbed.Node, each int) []*spoken {
	t.Helper()
	all, err := beginFlows(client.Do, each)
	t.Cleanup(func() {
		for _, s := range all {
			if s != nil {
				s.conn.Close()
			}
		}
	})
	kit.Must(t, err)
	return all
}

// talkAll has every flow ask once, and returns how many are broken, with one of the reasons.
func talkAll(all []*spoken) (broken int64, reason error) {
	var wait sync.WaitGroup
	var next, bad atomic.Int64
	var why atomic.Value
	for range 64 {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
				if err := all[i].talk(); err != nil {
					bad.Add(1)
					why.Store(fmt.Errorf("tcp %v: %w", all[i].tcp, err))
				}
			}
		})
	}
	wait.Wait()
	reason, _ = why.Load().(error)
	return bad.Load(), reason
}

// affinity is the size of the test: the flows of each protocol, how many LBs die, and how often. The
// full size is PROFFER_AFFINITY=10000, which takes 10,000 open files a process.
func affinity(t *testing.T) (flows, kills int, every time.Duration) {
	t.Helper()
	text := os.Getenv("PROFFER_AFFINITY")
	if text == "" {
		return 300, 3, time.Second
	}
	flows, err := strconv.Atoi(text)
	kit.Must(t, err)
	return flows, 6, 5 * time.Second
}

// TestEdgeLBs: with two LBs that share the traffic, every packet of a flow meets one core of one node in
// both directions, and no flow breaks, while a node is added, nodes are drained, and LBs die in turn; a node
// that dies ends its flows with an error.
func TestEdgeLBs(t *testing.T) {
	b := newEdgeLBs(t)
	answering(t, b.world)
	t.Run("affinity", func(t *testing.T) { b.affinity(t) })
	t.Run("a node dies", func(t *testing.T) { b.nodeDies(t) })
	t.Run("clients only receive", func(t *testing.T) { b.clientsOnlyReceive(t) })
}

func (b *edgeLBs) affinity(t *testing.T) {
	flows, kills, every := affinity(t)
	flows -= flows % (2 * talkers)
	var all []*talker
	for range talkers {
		all = append(all, newTalker(t, b.client))
	}
	var at [lbsNodes]int
	for half, some := range [][]*talker{all[:talkers/2], all[talkers/2:]} {
		begun := tellAll(t, some, fmt.Sprintf("begin %d", flows/talkers))
		if begun.Why != "" {
			t.Fatal(begun.Why)
		}
		for node, n := range begun.At {
			at[node] += n
		}
		for _, k := range some {
			k.tell(t, "talk")
		}
		if half == 0 {
			b.weigh(t, 1, 1, 1) // n2 is added while the first half talks
		}
	}
	b.churn(t, kills, every)
	result := tellAll(t, all, "stop")
	if result.Broken > 0 {
		t.Errorf("%d flows are broken, as %s", result.Broken, result.Why)
	}
	t.Logf("%d TCP connections and %d UDP flows at the nodes %v, %d rounds, %d LBs died: %d broken", flows, flows, at, result.Rounds, kills, result.Broken)
	b.atOneInstance(t, uint64(2*flows))
}

// churn drains nodes, and ends that, while LBs die in turn.
func (b *edgeLBs) churn(t *testing.T, kills int, every time.Duration) {
	b.weigh(t, 0, 1, 1) // n0 drains
	for i := range kills {
		next := time.After(every)
		b.kill(t, i%2)
		time.Sleep(every / 4)
		b.revive(t, i%2)
		<-next
		b.weigh(t, [][]int{{1, 0, 1}, {1, 1, 0}, {0, 1, 1}}[i%3]...)
	}
}

// atOneInstance: each flow has one binding, at one node; no packet of a flow came to another core there
// than those before it, and none to a node without its binding.
func (b *edgeLBs) atOneInstance(t *testing.T, flows uint64) {
	t.Helper()
	for counter, want := range map[string]uint64{
		"nat_bound": flows, "firewall_admitted": flows, "flow_moved": 0, "flow_unkept": 0, "refused": 0, "unbound": 0,
		"drop_nat_unknown": 0, "drop_firewall_state": 0, "drop_nat_exhausted": 0,
	} {
		if n := b.sum(t, counter, b.node); n != want {
			t.Errorf("%s of the nodes is %d, want %d", counter, n, want)
		}
	}
	if n := b.sum(t, "recovered", b.lb); n == 0 {
		t.Error("no flow was recovered")
	}
	for _, n := range b.lb {
		t.Logf("%s: %v", n.Name, edgeStatus(t, b.socket(n)).Counters)
	}
}

// nodeDies: the flows of a node that dies end with an error, others go on, and new ones find nodes.
func (b *edgeLBs) nodeDies(t *testing.T) {
	b.weigh(t, 1, 1, 1)
	all := beginEach(t, b.client, 40)
	kit.Must(t, b.nodes[1].Process.Signal(unix.SIGKILL))
	b.nodes[1].Wait()
	b.down(t, "n1")
	ended := 0
	for _, s := range all {
		err := s.talk()
		want := error(nil)
		if s.at() == 1 {
			ended++
			want = map[bool]error{true: syscall.ECONNRESET, false: syscall.ECONNREFUSED}[s.tcp]
		}
		if !errors.Is(err, want) {
			t.Errorf("tcp %v at node %d: %v, want %v", s.tcp, s.at(), err, want)
		}
		if s.at() == 1 && !s.tcp {
			s.port = 0 // another one
			if err := s.talk(); err != nil || s.at() == 1 {
				t.Errorf("the next datagrams at node %d: %v", s.at(), err)
			}
		}
	}
	if ended == 0 || ended == len(all) {
		t.Errorf("%d of %d flows had the node", ended, len(all))
	}
	for _, s := range beginEach(t, b.client, 20) {
		if s.at() == 1 {
			t.Error("a flow began at the node that is down")
		}
	}
	b.beginAgain(t, 1)
}

// down waits until that node alone is down at all LBs, or none is.
func (b *edgeLBs) down(t *testing.T, node string) {
	t.Helper()
	for _, n := range b.lb {
		kit.Eventually(t, fmt.Sprintf("at %s %q is down", n.Name, node), func() bool {
			status := edgeStatus(t, b.socket(n))
			for _, c := range status.Edge.Cores {
				if (c.State == "down") != (c.Node == node) {
					return false
				}
			}
			return (len(status.NoNextHop) == 0) == (node == "")
		})
	}
}

// beginAgain starts a node that has ended, and waits until the LBs use it.
func (b *edgeLBs) beginAgain(t *testing.T, i int) {
	t.Helper()
	b.nodes[i] = runEdge(b.whole, b.node[i], "nf", b.file(b.node[i]), b.socket(b.node[i]))
	b.down(t, "")
}
