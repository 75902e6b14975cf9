package fsm

import (
	"slices"
	"testing"
	"time"

	"proffer/wire"
)

const isn = 7_000_000

var (
	pool     = Pool{Candidates: []Node{1, 2}, Members: []Node{1, 2, 3}}
	opensIt  = TCP{Flags: wire.SYN, Seq: isn}
	answers  = TCP{Flags: wire.SYN | wire.ACK, Seq: 500, Ack: isn + 1}
	confirms = TCP{Flags: wire.ACK, Seq: isn + 1, Ack: 501}
	request  = Host{State: Request, ClientISN: isn, ServerISN: 500, Listening: true}
)

func to(f wire.Function, s TCP) Packet {
	return Packet{TCP: s, From: 2, SID: SID{Function: f, Generation: wire.Generation(isn)}}
}

// functions are those of an outcome's route, by node.
func functions(o Outcome) (f []SID) {
	for _, s := range o.Route {
		f = append(f, SID{Node: s.Node, Function: s.Function})
	}
	return f
}

// TestTableII: the rows that 6LB prints, in turn.
func TestTableII(t *testing.T) {
	l := LB{}
	for _, row := range []struct {
		what string
		in   Packet
		act  Act
		want []SID
	}{
		{"LB_LISTEN, data", Packet{TCP: confirms}, Send,
			[]SID{{Node: 1, Function: wire.RecoverStickiness}, {Node: 2, Function: wire.RecoverStickiness}, {Node: 3, Function: wire.RecoverStickiness}}},
		{"LB_LISTEN, SYN", Packet{TCP: opensIt}, Send, []SID{{Node: 1, Function: wire.ConnectAvail}, {Node: 2, Function: wire.ConnectForce}}},
		{"HUNTING, SYN", Packet{TCP: opensIt}, Send, []SID{{Node: 1, Function: wire.ConnectAvail}, {Node: 2, Function: wire.ConnectForce}}},
		{"HUNTING, createStickiness", to(wire.CreateStickiness, answers), Client, nil},
		{"STEER, data", Packet{TCP: confirms}, Send, []SID{{Node: 2, Function: wire.AckStickiness}}},
		{"STEER, removeStickiness", to(wire.RemoveStickiness, TCP{Flags: wire.FIN | wire.ACK, Seq: 501, Ack: isn + 1}), Client, nil},
		{"STEER, the client's FIN", Packet{TCP: TCP{Flags: wire.FIN | wire.ACK, Seq: isn + 1, Ack: 502}}, Send, []SID{{Node: 2, Function: wire.AckStickiness}}},
	} {
		var got Outcome
		if l, got = l.Step(pool, time.Second, row.in); got.Act != row.act || !slices.Equal(functions(got), row.want) {
			t.Errorf("%s: %+v, want %v %+v", row.what, got, row.act, row.want)
		}
	}
	if l = l.Sweep(11*time.Second, 10*time.Second, time.Minute); !l.Flow.Known {
		t.Error("the entry went before 10 s had passed")
	}
	if l = l.Sweep(12*time.Second, 10*time.Second, time.Minute); l.Flow.Known {
		t.Error("the entry stayed after 10 s")
	}
}

// TestTableIII: the same for a server, and its next signal to the LB.
func TestTableIII(t *testing.T) {
	a := Agent{}
	offered := to(wire.ConnectAvail, opensIt)
	offered.Others = true
	asked := to(wire.RecoverStickiness, confirms)
	asked.Others = true
	full := Host{State: Full, ClientISN: isn, ServerISN: 500, Next: isn + 1, Listening: true}
	for _, row := range []struct {
		what string
		host Host
		in   Packet
		act  Act
		then wire.Function // of the next answer
	}{
		{"LISTEN, connectAvail, busy", Host{Listening: true, Busy: true}, offered, PassOn, wire.None},
		{"LISTEN, recoverStickiness, not local", Host{Listening: true}, asked, PassOn, wire.None},
		{"LISTEN, connectAvail, available", Host{Listening: true}, offered, Deliver, wire.CreateStickiness},
		{"WAIT, connectForce", request, to(wire.ConnectForce, opensIt), Deliver, wire.CreateStickiness},
		{"WAIT, ackStickiness", request, to(wire.AckStickiness, confirms), Deliver, wire.None},
		{"DIRECT, ackStickiness", full, to(wire.AckStickiness, confirms), Deliver, wire.None},
		{"DIRECT, recoverStickiness, local", full, asked, Deliver, wire.CreateStickiness},
	} {
		var got Outcome
		if a, got = a.In(row.host, time.Second, row.in); got.Act != row.act {
			t.Errorf("%s: %+v, want %v", row.what, got, row.act)
		}
		_, out := a.Out(time.Second, answers)
		if got := append(functions(out), SID{})[0].Function; got != row.then {
			t.Errorf("after %s the next answer goes by function %s, want %s", row.what, got, row.then)
		}
	}
	a, _ = a.In(full, time.Second, to(wire.AckStickiness, confirms))
	if _, out := a.Out(time.Second, TCP{Flags: wire.FIN | wire.ACK, Seq: 501}); len(out.Route) != 1 || out.Route[0].Function != wire.RemoveStickiness {
		t.Errorf("DIRECT, FIN: %+v", out)
	}
}
