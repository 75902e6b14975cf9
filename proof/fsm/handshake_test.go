package fsm

import (
	"slices"
	"testing"
	"time"

	"proffer/policy"
)

const isn = 7_000_000

var (
	pool     = Pool{Candidates: []Node{1, 2}, Members: []Node{1, 2, 3}}
	opensIt  = TCP{Flags: SYN, Seq: isn}
	answers  = TCP{Flags: SYN | ACK, Seq: 500, Ack: isn + 1}
	confirms = TCP{Flags: ACK, Seq: isn + 1, Ack: 501}
	request  = Host{State: Request, ClientISN: isn, ServerISN: 500, Listening: true}
)

func to(f Function, s TCP) Packet {
	return Packet{TCP: s, From: 2, SID: SID{Function: f, Generation: policy.Generation(isn)}}
}

// functions are those of an outcome's route, by node.
func functions(o Outcome) (f []SID) {
	for _, s := range o.Route {
		f = append(f, SID{Node: s.Node, Function: s.Function})
	}
	return f
}

// TestTableII: the rows that 6LB prints, one after the other.
func TestTableII(t *testing.T) {
	l := LB{}
	for _, row := range []struct {
		what string
		in   Packet
		act  Act
		want []SID
	}{
		{"LB_LISTEN, data", Packet{TCP: confirms}, Send,
			[]SID{{Node: 1, Function: RecoverStickiness}, {Node: 2, Function: RecoverStickiness}, {Node: 3, Function: RecoverStickiness}}},
		{"LB_LISTEN, SYN", Packet{TCP: opensIt}, Send, []SID{{Node: 1, Function: ConnectAvail}, {Node: 2, Function: ConnectForce}}},
		{"HUNTING, SYN", Packet{TCP: opensIt}, Send, []SID{{Node: 1, Function: ConnectAvail}, {Node: 2, Function: ConnectForce}}},
		{"HUNTING, createStickiness", to(CreateStickiness, answers), Client, nil},
		{"STEER, data", Packet{TCP: confirms}, Send, []SID{{Node: 2, Function: AckStickiness}}},
		{"STEER, removeStickiness", to(RemoveStickiness, TCP{Flags: FIN | ACK, Seq: 501, Ack: isn + 1}), Client, nil},
		{"STEER, the client's FIN", Packet{TCP: TCP{Flags: FIN | ACK, Seq: isn + 1, Ack: 502}}, Send, []SID{{Node: 2, Function: AckStickiness}}},
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

// TestTableIII: the same for a server, and what its next answer tells the LB.
func TestTableIII(t *testing.T) {
	a := Agent{}
	offered := to(ConnectAvail, opensIt)
	offered.Others = true
	asked := to(RecoverStickiness, confirms)
	asked.Others = true
	full := Host{State: Full, ClientISN: isn, ServerISN: 500, Next: isn + 1, Listening: true}
	for _, row := range []struct {
		what string
		host Host
		in   Packet
		act  Act
		then Function // of the next answer
	}{
		{"LISTEN, connectAvail, busy", Host{Listening: true, Busy: true}, offered, PassOn, NoFunction},
		{"LISTEN, recoverStickiness, not local", Host{Listening: true}, asked, PassOn, NoFunction},
		{"LISTEN, connectAvail, available", Host{Listening: true}, offered, Deliver, CreateStickiness},
		{"WAIT, connectForce", request, to(ConnectForce, opensIt), Deliver, CreateStickiness},
		{"WAIT, ackStickiness", request, to(AckStickiness, confirms), Deliver, NoFunction},
		{"DIRECT, ackStickiness", full, to(AckStickiness, confirms), Deliver, NoFunction},
		{"DIRECT, recoverStickiness, local", full, asked, Deliver, CreateStickiness},
	} {
		var got Outcome
		if a, got = a.In(row.host, time.Second, row.in); got.Act != row.act {
			t.Errorf("%s: %+v, want %v", row.what, got, row.act)
		}
		_, out := a.Out(time.Second, answers)
		if got := append(functions(out), SID{})[0].Function; got != row.then {
			t.Errorf("after %s the next answer goes by function %#x, want %#x", row.what, got, row.then)
		}
	}
	a, _ = a.In(full, time.Second, to(AckStickiness, confirms))
	if _, out := a.Out(time.Second, TCP{Flags: FIN | ACK, Seq: 501}); len(out.Route) != 1 || out.Route[0].Function != RemoveStickiness {
		t.Errorf("DIRECT, FIN: %+v", out)
	}
}
