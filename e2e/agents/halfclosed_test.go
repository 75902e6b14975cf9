package agents

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"proffer/e2e/kit"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
	"proffer/topo"
)

// linger is how long entries of ended connections stay in these tests.
const linger = time.Second

// lingering makes both tables forget soon.
func lingering(s *farmrun.Settings) {
	s.LB = func(lb *topo.LB) { lb.Flows.Linger = linger }
	s.Agent = func(_ *testbed.Node, a *topo.Agent) { a.Flows.Linger = linger }
}

// halfOpen is a connection's one direction, which goes on slowly after the other
// has ended, for longer than entries linger.
func halfOpen(to, from net.Conn) error {
	const pieces, pause = 40, linger / 10
	var all bytes.Buffer
	if _, err := io.Copy(&all, responder.Bytes(pieces*1000)); err != nil {
		return err
	}
	came := make(chan error, 1)
	go func() {
		got, err := io.ReadAll(from)
		if err == nil && !bytes.Equal(got, all.Bytes()) {
			err = errors.New("other bytes came than were sent")
		}
		came <- err
	}()
	for piece := range pieces {
		if _, err := to.Write(all.Bytes()[piece*1000:][:1000]); err != nil {
			return err
		}
		time.Sleep(pause)
		if piece == pieces/2 { // and nothing at all for longer
			time.Sleep(2 * linger)
		}
	}
	return errors.Join(to.(*net.TCPConn).CloseWrite(), <-came)
}

// TestHalfClosed: a side that has sent its FIN may receive for as long
// as it likes; no node forgets the connection before both have.
func TestHalfClosed(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 3})
	s := kit.Settings(t, "hunt:static:0")
	lingering(&s)
	accepted := make(chan net.Conn, 2)
	for _, n := range bed.Servers {
		l := kit.ListenAt(t, bed, n, farmrun.Backlog)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				accepted <- c
			}
		}()
	}
	farm := kit.Start(t, bed, s)
	pair := func() (client, server net.Conn) {
		c := kit.Dial(t, bed)
		server = <-accepted
		t.Cleanup(func() { server.Close() })
		kit.Say(t, c, "?")
		if _, err := io.ReadFull(server, make([]byte, 2)); err != nil {
			t.Fatal(err)
		}
		return c, server
	}
	results := make(chan error)
	for _, closer := range []string{"client", "server"} {
		from, to := pair() // from is the one that has ended
		if closer == "server" {
			from, to = to, from
		}
		go func() {
			err := from.(*net.TCPConn).CloseWrite()
			if n, ended := io.Copy(io.Discard, to); n > 0 || ended != nil {
				err = errors.Join(err, ended, errors.New("the end did not come"))
			}
			results <- errors.Join(err, halfOpen(to, from))
		}()
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"recover", "stale_removed", "recover_returned"} {
		if n := kit.Counter(t, farm, name, bed.LBs[0]); n > 0 {
			t.Errorf("%s: %d: the LB forgot a connection that lived", name, n)
		}
	}
	for _, name := range []string{"give_back_not_mine", "steered_adopted", "unowned"} {
		if n := kit.Counter(t, farm, name, bed.Servers...); n > 0 {
			t.Errorf("%s: %d: an agent forgot a connection that lived", name, n)
		}
	}
	for _, n := range append(bed.Servers, bed.LBs...) {
		kit.EventuallyIs(t, "entries of "+n.Name, 0, func() uint64 { return kit.Status(t, farm, n).Flows })
	}
}
