package edge

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// telling is the port of a server of the world that tells who calls, again and again without being asked,
// from which port that is, until the test ends, but while it is silent.
const telling = 9

func tellWorld(t *testing.T, world *testbed.Node) (silent *atomic.Bool) {
	t.Helper()
	silent = new(atomic.Bool)
	tell := func(from netip.AddrPort, write func([]byte) error) {
		word := binary.BigEndian.AppendUint16(nil, from.Port())
		for t.Context().Err() == nil && (silent.Load() || write(word) == nil) {
			time.Sleep(20 * time.Millisecond)
		}
	}
	serveWorld(t, world, telling, func(conn net.Conn) {
		tell(conn.RemoteAddr().(*net.TCPAddr).AddrPort(), func(b []byte) error {
			_, err := conn.Write(b)
			return err
		})
	}, func(at *net.UDPConn, _ []byte, from netip.AddrPort) {
		go tell(from, func(b []byte) error {
			_, err := at.WriteToUDPAddrPort(b, from)
			return err
		})
	})
	return silent
}

// listening is a flow of the client that only receives, once it has begun.
type listening struct {
	*spoken
}

// hear waits for the next word.
func (l *listening) hear() error {
	l.conn.SetReadDeadline(time.Now().Add(kit.Patience))
	b := make([]byte, 2)
	if _, err := io.ReadFull(l.conn, b); err != nil {
		return err
	}
	return l.from(binary.BigEndian.Uint16(b))
}

// listen begins as many flows of each protocol.
func (b *edgeLBs) listen(t *testing.T, each int) (all []*listening) {
	t.Helper()
	for i := range 2 * each {
		l := &listening{&spoken{tcp: i%2 == 0}}
		kit.Must(t, b.client.Do(func() (err error) {
			l.conn, err = dialFresh(l.tcp, telling)
			return err
		}))
		t.Cleanup(func() { l.conn.Close() })
		if !l.tcp {
			_, err := l.conn.Write([]byte("hello"))
			kit.Must(t, err)
		}
		kit.Must(t, l.hear())
		all = append(all, l)
	}
	return all
}

// clientsOnlyReceive: a client that sends nothing gets an error when the node that has its port dies, and
// when it begins again without its bindings; all others go on.
func (b *edgeLBs) clientsOnlyReceive(t *testing.T) {
	b.weigh(t, 1, 1, 1)
	silent := tellWorld(t, b.world)
	for _, again := range []bool{false, true} {
		all := b.listen(t, 12)
		silent.Store(again)
		time.Sleep(200 * time.Millisecond) // words on their way
		kit.Must(t, b.nodes[1].Process.Signal(unix.SIGKILL))
		b.nodes[1].Wait()
		if again { // between two words
			b.beginAgain(t, 1)
			silent.Store(false)
		}
		ended := 0
		for _, l := range all {
			want := error(nil)
			if l.at() == 1 {
				ended++
				want = map[bool]error{true: syscall.ECONNRESET, false: syscall.ECONNREFUSED}[l.tcp]
			}
			err := l.hear()
			for want != nil && err == nil { // words on their way
				err = l.hear()
			}
			if !errors.Is(err, want) {
				t.Errorf("tcp %v at node %d, which begins again %v: %v, want %v", l.tcp, l.at(), again, err, want)
			}
		}
		if ended == 0 || ended == len(all) {
			t.Errorf("%d of %d flows had the node", ended, len(all))
		}
		if !again {
			b.beginAgain(t, 1)
		}
	}
	if b.sum(t, "keepalive", b.lb) == 0 || b.sum(t, "unbound", b.node) == 0 {
		t.Errorf("keepalive %d at the LBs, unbound %d at the nodes, want both", b.sum(t, "keepalive", b.lb), b.sum(t, "unbound", b.node))
	}
}
