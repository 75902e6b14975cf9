package agent_test

import (
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestOutsideWindow: a packet that the stack drops by its sequence number changes nothing
// that the agent knows of a flow, and hides no later request.
func TestOutsideWindow(t *testing.T) {
	for _, c := range []struct {
		label  string
		change []func(*topo.Offering)
		inside uint32 // a gap that the stack takes
	}{
		{"the kernel's window", nil, 1000},
		{"owner table", []func(*topo.Offering){rig.ByTable}, 1 << 20},
	} {
		t.Run(c.label, func(t *testing.T) {
			r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort, c.change...))
			testOutsideWindow(t, r, c.inside)
		})
	}
}

func testOutsideWindow(t *testing.T, r *rig.Agent, inside uint32) {
	p := rig.Inward(rig.HuntPort, wire.SYN)
	p.Seq = 0xfffffff0 // the numbers wrap
	r.Begin(t, p)
	r.Acknowledge(t, p)
	next := p.Seq + 1
	send := func(flags byte, at uint32, length int) {
		q := rig.Inward(rig.HuntPort, flags)
		q.Seq, q.Ack, q.Payload = at, 9000, make([]byte, length)
		r.Send(t, rig.To(q, wire.Generation(p.Seq), wire.AckStickiness).Frame())
	}
	was := r.MustConn(t, p)
	for _, c := range []struct {
		label  string
		flags  byte
		ahead  uint32
		length int
	}{
		{"a byte 1 GB ahead", wire.ACK | wire.PSH, 1e9, 1},
		{"a byte 2^30 ahead", wire.ACK | wire.PSH, 1 << 30, 1},
		{"a byte 8 MiB ahead", wire.ACK | wire.PSH, 8 << 20, 1},
		{"a FIN 1 GB ahead", wire.ACK | wire.FIN, 1e9, 0},
		{"a FIN with data 1 GB ahead", wire.ACK | wire.FIN, 1e9, 10},
		{"a FIN 1 GB behind", wire.ACK | wire.FIN, ^uint32(1e9), 0},
		{"a RST 1 GB ahead", wire.RST, 1e9, 0},
		{"data of old", wire.ACK | wire.PSH, ^uint32(99), 100},
		{"an empty packet 1 GB ahead", wire.ACK, 1e9, 0},
	} {
		send(c.flags, next+c.ahead, c.length)
		if is := r.MustConn(t, p); is != was {
			t.Errorf("%s made %+v of %+v", c.label, is, was)
		}
		if n := r.Asking(t); n != 0 {
			t.Errorf("%s: %d requests in progress, want 0", c.label, n)
		}
	}
	send(wire.ACK|wire.FIN, next+inside, 0)
	if is := r.MustConn(t, p); is.NextIn != next || r.Asking(t) != 0 {
		t.Errorf("a FIN %d ahead: next_in is %d with %d requests in progress, want %d and 0", inside, is.NextIn, r.Asking(t), next)
	}
	send(wire.ACK|wire.PSH, next, 10)
	send(wire.ACK|wire.PSH, next+10+inside, 10) // a packet before it was lost
	is := r.MustConn(t, p)
	if want := next + 20 + inside; is.NextIn != want || r.Asking(t) != 1 {
		t.Errorf("after two requests next_in is %d with %d in progress, want %d and 1", is.NextIn, r.Asking(t), want)
	}
}

// TestStackDropsRequest: where the stack drops a packet that the agent counted, the next
// answer's acknowledgement tells it, and the client's next request counts again.
func TestStackDropsRequest(t *testing.T) {
	r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort, rig.ByTable))
	p := rig.Inward(rig.HuntPort, wire.SYN)
	r.Accept(t, p)
	r.Acknowledge(t, p)
	ask := func(length int, want uint32) {
		t.Helper()
		q := rig.Inward(rig.HuntPort, wire.ACK|wire.PSH)
		q.Seq, q.Payload = p.Seq+1, make([]byte, length)
		r.Send(t, rig.To(q, wire.Generation(p.Seq), wire.AckStickiness).Frame())
		if n := r.Asking(t); n != want {
			t.Errorf("%d bytes: %d requests in progress, want %d", length, n, want)
		}
	}
	answer := func(flags byte, ack uint32, length int) {
		q := rig.Outward(rig.HuntPort, flags)
		q.Ack, q.Payload = ack, make([]byte, length)
		answerOut(r, t, q, 0)
	}
	ask(1400, 1) // with a bad checksum, say
	answer(wire.ACK|wire.PSH, p.Seq+1, 100)
	ask(100, 1)
	answer(wire.RST, 0, 0)
	if is, want := r.MustConn(t, p).NextIn, p.Seq+101; is != want {
		t.Errorf("a RST, which acknowledges nothing, left next_in %d, want %d", is, want)
	}
}

// TestResetBehindLostData: a client's RST behind payload that the stack did not take, a byte
// ahead in the window or with a bad checksum, ends no request; the flow goes on with the
// socket's numbers, and is over after linger if the client does not.
func TestResetBehindLostData(t *testing.T) {
	sweep := func(r *rig.Agent) {
		t.Helper()
		if _, err := r.SweepAt(rig.Start + 11*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	for _, ahead := range []uint32{0, 1000} {
		for _, goesOn := range []bool{true, false} {
			r := rig.NewAgent(t, rig.Hits{}, rig.Offering(rig.HuntPort))
			p := rig.Inward(rig.HuntPort, wire.SYN)
			r.Begin(t, p) // and the socket expects p.Seq + 1
			r.Acknowledge(t, p)
			send := func(flags byte, seq uint32, length int) {
				q := rig.Inward(rig.HuntPort, flags)
				q.Seq, q.Ack, q.Payload = seq, 9000, make([]byte, length)
				r.Send(t, rig.To(q, wire.Generation(p.Seq), wire.AckStickiness).Frame())
			}
			asking := func(label string, want uint32) {
				t.Helper()
				if n := r.Asking(t); n != want {
					t.Errorf("%d ahead, %s: %d requests in progress, want %d", ahead, label, n, want)
				}
			}
			send(wire.ACK|wire.PSH, p.Seq+1+ahead, 1)
			send(wire.RST, p.Seq+2+ahead, 0)
			asking("RST", 1)
			if !goesOn {
				sweep(r)
				asking("after linger", 0)
				continue
			}
			answer := rig.Outward(rig.HuntPort, wire.ACK|wire.PSH)
			answer.Ack, answer.Payload = p.Seq+1, make([]byte, 10)
			answerOut(r, t, answer, 0)
			asking("answer", 0)
			send(wire.ACK|wire.PSH, p.Seq+1, 1)
			asking("next request", 1)
			sweep(r)
			asking("a long request", 1)
		}
	}
}
