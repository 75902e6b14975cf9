package nf_test

import (
	"fmt"
	"testing"
	"time"

	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// segment is a segment of the flow with numbers of its own.
func (f flow) segment(s wire.TCP, payload string) []byte {
	s.From, s.To = f.from.Port(), f.to.Port()
	return wire.IP{Source: f.from.Addr(), Destination: f.to.Addr(), HopLimit: 50, Class: 0x28, ID: 7}.TCP(s, []byte(payload))
}

// dialled is a TCP connection through a chain.
type dialled struct {
	b                *bench
	client, answered flow // segments of the client, and of the world
}

// ours and theirs are the sequence numbers that the ends send next.
const ours, theirs = 1001, 5001

// dial opens a connection through the firewall or NAT of service costly.
func (b *bench) dial(t *testing.T, family, port int) dialled {
	t.Helper()
	f := outward("tcp", family, port)
	out := b.run(t, around(to(0, costly), f.segment(wire.TCP{Seq: ours - 1, Flags: wire.SYN}, "")))
	d := dialled{b, f, f.reversed()}
	if _, _, err := wire.ParseTunnel(out.Frame); err == nil { // it came back changed
		d.answered = f.after(portOf(t, "SYN", out, "tcp")).reversed()
	}
	return d
}

// answer is the world's SYN-ACK and the client's acknowledgement.
func (d dialled) answer(t *testing.T) {
	t.Helper()
	d.passes(t, "SYN-ACK", true, wire.TCP{Seq: theirs - 1, Ack: ours, Flags: wire.SYN | wire.ACK})
	d.passes(t, "ACK", false, wire.TCP{Seq: ours, Ack: theirs, Flags: wire.ACK})
}

// passes sends a segment of one side, which leaves the node.
func (d dialled) passes(t *testing.T, label string, inward bool, s wire.TCP) {
	t.Helper()
	if out := d.send(t, inward, s); out.Action != redirect && out.Action != rig.XDPPass {
		t.Errorf("%s: action %d, %v", label, out.Action, out.Reasons)
	}
}

func (d dialled) send(t *testing.T, inward bool, s wire.TCP) rig.Outcome {
	t.Helper()
	f := d.client
	if inward {
		f = d.answered
	}
	return d.b.run(t, around(to(0, costly), f.segment(s, "")))
}

// after sweeps after a pause, and reports whether the node still knows the connection.
func (d dialled) after(t *testing.T, pause time.Duration) bool {
	t.Helper()
	d.b.at(t, d.b.now+pause)
	swept, err := d.b.SweepTurn()
	must(t, err)
	return swept.Kept > 0
}

// stateful are chains of one function that keeps connections.
func stateful() map[string]topo.Function {
	return map[string]topo.Function{
		"firewall": topo.Firewall{Rules: []topo.Rule{{Allow: true}}},
		"NAT":      topo.SourceNAT{Public4: public4, Public6: public6, First: first, Ports: ports},
	}
}

// testForgedRST: a RST with another number than the other end waits for ends nothing, whichever side it
// seems to come from: the connection outlives pauses above `linger`.
func testForgedRST(t *testing.T, seen rig.Hits) {
	for name, function := range stateful() {
		b := newBench(t, seen, chained(function))
		for _, family := range []int{4, 6} {
			for i, c := range []struct {
				label  string
				inward bool
				wire.TCP
			}{
				{"of the world, out of every window", true, wire.TCP{Seq: 1 << 31, Flags: wire.RST}},
				{"of the world, number 0", true, wire.TCP{Flags: wire.RST}},
				{"of the world, in the window", true, wire.TCP{Seq: theirs + 100, Flags: wire.RST}},
				{"of the world, as of a SYN", true, wire.TCP{Ack: ours, Flags: wire.RST | wire.ACK}},
				{"of the world, before the window", true, wire.TCP{Seq: theirs - 1, Ack: ours, Flags: wire.RST | wire.ACK}},
				{"of the client, out of every window", false, wire.TCP{Seq: 1 << 31, Flags: wire.RST}},
				{"of the client, number 0", false, wire.TCP{Flags: wire.RST}},
				{"of the client, in the window", false, wire.TCP{Seq: ours + 100, Flags: wire.RST}},
			} {
				label := fmt.Sprintf("%s, IPv%d, RST %s", name, family, c.label)
				d := b.dial(t, family, 1000+i)
				d.answer(t)
				d.passes(t, label, c.inward, c.TCP)
				if !d.after(t, 5*time.Second) {
					t.Errorf("%s: the connection is forgotten", label)
				}
				d.passes(t, label+", data of the client", false, wire.TCP{Seq: ours, Ack: theirs, Flags: wire.ACK})
				d.passes(t, label+", data of the world", true, wire.TCP{Seq: theirs, Ack: ours, Flags: wire.ACK})
				if d.after(t, 10*time.Second) {
					t.Errorf("%s: the connection stays for more than `idle`", label)
				}
			}
		}
	}
}

// testRST: a RST that the other end takes closes the connection, until the client network's next segment;
// the world's segments do not take it back.
func testRST(t *testing.T, seen rig.Hits) {
	data := wire.TCP{Seq: ours, Ack: theirs, Flags: wire.ACK}
	for name, function := range stateful() {
		b := newBench(t, seen, chained(function))
		for _, family := range []int{4, 6} {
			for i, c := range []struct {
				label  string
				inward bool
				wire.TCP
			}{
				{"of the world", true, wire.TCP{Seq: theirs, Flags: wire.RST}},
				{"of the client", false, wire.TCP{Seq: ours, Flags: wire.RST | wire.ACK, Ack: theirs}},
			} {
				for _, back := range []bool{false, true} {
					label := fmt.Sprintf("%s, IPv%d, RST %s, taken back %t", name, family, c.label, back)
					d := b.dial(t, family, 2000+2*i)
					d.answer(t)
					d.passes(t, label, c.inward, c.TCP)
					d.passes(t, label+", the world goes on", true, wire.TCP{Seq: theirs, Ack: ours, Flags: wire.ACK})
					if back {
						d.passes(t, label+", the client goes on", false, data)
					}
					if known := d.after(t, 5*time.Second); known != back {
						t.Errorf("%s: known after `linger` %t", label, known)
					}
					if d.after(t, 10*time.Second) {
						t.Errorf("%s: known after `idle`", label)
					}
				}
			}
			refused := b.dial(t, family, 3000)
			refused.passes(t, "a SYN is refused", true, wire.TCP{Ack: ours, Flags: wire.RST | wire.ACK})
			if refused.after(t, 5*time.Second) {
				t.Errorf("%s, IPv%d: a refused SYN is known after `linger`", name, family)
			}
			late := b.dial(t, family, 3001)
			late.answer(t)
			late.passes(t, "data", true, wire.TCP{Seq: theirs + 1000, Ack: ours, Flags: wire.ACK})
			late.passes(t, "a RST behind data that is not acknowledged", true, wire.TCP{Seq: theirs + 1000, Flags: wire.RST})
			if late.after(t, 5*time.Second) {
				t.Errorf("%s, IPv%d: a RST behind data is not taken", name, family)
			}
		}
	}
}

// testForgedFIN: a FIN far from all numbers of its sender closes nothing.
func testForgedFIN(t *testing.T, seen rig.Hits) {
	for name, function := range stateful() {
		b := newBench(t, seen, chained(function))
		d := b.dial(t, 4, 1)
		d.answer(t)
		d.passes(t, "forged FIN", true, wire.TCP{Seq: 1 << 31, Ack: ours, Flags: wire.FIN | wire.ACK})
		d.passes(t, "half-closed by the client", false, wire.TCP{Seq: ours, Ack: theirs, Flags: wire.FIN | wire.ACK})
		if !d.after(t, 5*time.Second) {
			t.Errorf("%s: a forged FIN and the client's end the connection", name)
		}
		d.passes(t, "the world's FIN", true, wire.TCP{Seq: theirs, Ack: ours + 1, Flags: wire.FIN | wire.ACK})
		if d.after(t, 2*time.Second) {
			t.Errorf("%s: both FINs do not end the connection", name)
		}
	}
}
