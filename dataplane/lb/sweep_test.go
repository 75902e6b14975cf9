package lb_test

import (
	"testing"
	"time"

	"proffer/dataplane"
	"proffer/dataplane/internal/plane"
	"proffer/policy"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// life is the packets of a flow before it is left alone.
type life struct {
	label string
	live  func(*testing.T, *rig.LB)
	age   time.Duration // the longest that its entry may be silent
}

func clientSends(flags byte) func(*testing.T, *rig.LB) {
	return func(t *testing.T, r *rig.LB) { r.Send(t, rig.Inward(rig.HuntPort, flags).Frame()) }
}

func serverSends(flags byte) func(*testing.T, *rig.LB) {
	return func(t *testing.T, r *rig.LB) {
		r.Send(t, rig.SignalFrom(1, rig.Outward(rig.HuntPort, flags), wire.RemoveStickiness, wire.Generation(rig.ClientISN)))
	}
}

func all(steps ...func(*testing.T, *rig.LB)) func(*testing.T, *rig.LB) {
	return func(t *testing.T, r *rig.LB) {
		for _, step := range steps {
			step(t, r)
		}
	}
}

// testSweepFlows: an entry goes when its time has run out, not before: the
// lingering after both sides closed or the server reset, the idle one otherwise.
func testSweepFlows(t *testing.T, seen rig.Hits) {
	const idle, linger = 5 * time.Minute, 10 * time.Second
	r := rig.NewLB(t, seen, rig.Hunting(2, 4, rig.Members))
	for _, c := range []life{
		{"established", clientSends(wire.ACK), idle},
		{"client closed", clientSends(wire.FIN | wire.ACK), idle},
		{"server closed", serverSends(wire.FIN | wire.ACK), idle},
		{"both closed", all(clientSends(wire.FIN|wire.ACK), serverSends(wire.FIN|wire.ACK)), linger},
		{"both closed, server first", all(serverSends(wire.FIN|wire.ACK), clientSends(wire.FIN|wire.ACK)), linger},
		{"reset by the server", serverSends(wire.RST), linger},
		{"forged client RST", clientSends(wire.RST | wire.ACK), idle},
	} {
		r.At(t, rig.Start)
		r.Learn(t, 1, rig.ClientISN)
		c.live(t, r)
		for _, s := range []struct {
			after time.Duration
			want  dataplane.Swept
		}{{-time.Second, dataplane.Swept{Kept: 1}}, {c.age, dataplane.Swept{Kept: 1}}, {c.age + 2*rig.Unit, dataplane.Swept{Removed: 1}}, {c.age + 3*rig.Unit, dataplane.Swept{}}} {
			r.At(t, rig.Start+s.after)
			got, err := r.Sweep()
			if err != nil || got != s.want {
				t.Errorf("%s, after %v: %+v, %v, want %+v", c.label, s.after, got, err, s.want)
			}
		}
	}
	testClosedEarly(t, r)
	testTouch(t, r)
	testLongestAge(t)
	testSweepTurns(t)
}

// testClosedEarly: a flow that closes before the LB knows it as established leaves no entry for
// the idle time, however its signals and packets are ordered.
func testClosedEarly(t *testing.T, r *rig.LB) {
	generation := wire.Generation(rig.ClientISN)
	signal := func(function wire.Function, flags byte, closed wire.Flags) []byte {
		p := rig.Outward(rig.HuntPort, flags)
		return rig.SignalTo(1, p, rig.WithFlags(rig.SID(rig.LbLocator, function, generation), closed))
	}
	synAck := rig.SignalFrom(1, rig.SynAck(rig.HuntPort), wire.CreateStickiness, generation)
	client := rig.Inward(rig.HuntPort, wire.FIN|wire.ACK)
	client.Seq, client.Ack = rig.ClientISN+1, rig.ServerISN+1
	fin := client.Frame()
	const finAck, data, both = wire.FIN | wire.ACK, wire.ACK, wire.ClientClosed | wire.ServerClosed
	for _, c := range []struct {
		label  string
		frames [][]byte
	}{
		{"FIN of the client establishes it", [][]byte{synAck, fin, signal(wire.RemoveStickiness, finAck, wire.ServerClosed)}},
		{"rms before its SYN-ACK's cs", [][]byte{signal(wire.RemoveStickiness, finAck, both), synAck}},
		{"rms before cs of data", [][]byte{signal(wire.RemoveStickiness, finAck, wire.ServerClosed), signal(wire.CreateStickiness, data, 0), fin}},
		{"RST before cs of data", [][]byte{signal(wire.CreateStickiness, wire.RST, both), signal(wire.CreateStickiness, data, 0)}},
		{"rms while it is embryonic", [][]byte{synAck, signal(wire.RemoveStickiness, finAck, wire.ServerClosed), fin}},
		{"cs of the server's FIN", [][]byte{signal(wire.CreateStickiness, finAck, wire.ServerClosed), fin}},
		{"cs after both FINs", [][]byte{signal(wire.CreateStickiness, data, both)}},
		{"cs again after both FINs", [][]byte{signal(wire.CreateStickiness, data, 0), signal(wire.CreateStickiness, data, both)}},
	} {
		r.Table.Empty(t)
		r.At(t, rig.Start)
		for i, frame := range c.frames {
			if out := r.Send(t, frame); out.Action != rig.XDPTX {
				t.Errorf("%s, frame %d: action %d for %v", c.label, i, out.Action, out.Reasons)
			}
		}
		r.At(t, rig.Start+r.Cfg.Flows.Linger+2*rig.Unit)
		if got, err := r.Sweep(); err != nil || got != (dataplane.Swept{Removed: 1}) {
			t.Errorf("%s: after the linger time %+v, %v, want one entry removed", c.label, got, err)
		}
	}
}

// testLongestAge: the longest time that may be configured is one that the table can
// tell, for as long as some rounds of the sweep take.
func testLongestAge(t *testing.T) {
	rig.Enter(t)
	cfg := rig.LBConfig(rig.Hunting(2, 4, rig.Members))
	cfg.Flows.Idle = topo.MaxAge
	r := rig.LoadLB(t, rig.Hits{}, cfg)
	for after, want := range map[time.Duration]dataplane.Swept{
		topo.MaxAge:               {Kept: 1},
		topo.MaxAge + 2*rig.Unit:  {Removed: 1},
		topo.MaxAge + time.Minute: {Removed: 1},
	} {
		r.At(t, rig.Start)
		r.Learn(t, 1, rig.ClientISN)
		r.At(t, rig.Start+after)
		if got, err := r.Sweep(); err != nil || got != want {
			t.Errorf("%v old: %+v, %v, want %+v", after, got, err, want)
		}
		r.Table.Empty(t)
	}
}

// testSweepTurns: a table is swept in turns, and the count of each turn is reported until it
// is its turn again.
func testSweepTurns(t *testing.T) {
	rig.Enter(t)
	cfg := rig.LBConfig(rig.Hunting(2, 4, rig.Members))
	cfg.Flows.Entries = 10_000
	r := rig.LoadLB(t, rig.Hits{}, cfg)
	r.At(t, rig.Start)
	word := rig.Entry{Fingerprint: uint64(rig.Start/rig.Unit) & 0xffff, Word: rig.WordOf(1)}
	var first, second policy.Flow // of the lines of the first turn, and of the second one
	for i := uint32(1); first == second || turnOf(r, first) != 0 || turnOf(r, second) != 1; i++ {
		f := rig.CrowdFlow(i).Flow()
		if turnOf(r, f) == 0 {
			first = f
		} else {
			second = f
		}
	}
	for _, f := range []policy.Flow{first, second} {
		fp, _ := r.Table.LinesOf(f)
		r.Table.Put(t, f, rig.Entry{Fingerprint: word.Fingerprint | fp<<rig.DigestShift, Word: word.Word})
	}
	for i, step := range []struct {
		after time.Duration
		want  dataplane.Swept
	}{
		{0, dataplane.Swept{Kept: 1}},
		{0, dataplane.Swept{Kept: 2}},
		{0, dataplane.Swept{Kept: 2}},
		{0, dataplane.Swept{Kept: 2}},
		{0, dataplane.Swept{Kept: 2}},
		{cfg.Flows.Idle + 2*rig.Unit, dataplane.Swept{Kept: 1, Removed: 1}},
		{cfg.Flows.Idle + 2*rig.Unit, dataplane.Swept{Removed: 1}},
		{cfg.Flows.Idle + 2*rig.Unit, dataplane.Swept{}},
	} {
		r.At(t, rig.Start+step.after)
		if got, err := r.SweepTurn(); err != nil || got != step.want {
			t.Errorf("turn %d: %+v, %v, want %+v", i, got, err, step.want)
		}
	}
	if first, past := r.TurnsLine(0), r.TurnsLine(plane.SweepTurns); first != 0 || past != r.Lines {
		t.Errorf("the turns are from line %d to %d, of %d", first, past, r.Lines)
	}
}

// turnOf is the turn of the line where put puts a flow.
func turnOf(r *rig.LB, f policy.Flow) (turn int) {
	_, lines := r.Table.LinesOf(f)
	for lines[0] >= r.TurnsLine(turn+1) {
		turn++
	}
	return turn
}

// testTouch: a packet renews its entry, as exactly as the entry can say.
func testTouch(t *testing.T, r *rig.LB) {
	r.Learn(t, 1, rig.ClientISN)
	for _, c := range []struct{ now, seen time.Duration }{
		{rig.Start, rig.Start / rig.Unit},
		{rig.Start + rig.Unit, rig.Start/rig.Unit + 1},
		{rig.Start + time.Hour, (rig.Start + time.Hour) / rig.Unit},
	} {
		r.At(t, c.now)
		r.Send(t, rig.Inward(rig.HuntPort, wire.ACK).Frame())
		if e, _ := r.Flow(t, rig.Inward(rig.HuntPort, wire.ACK).Flow()); e.Seen != c.seen*rig.Unit {
			t.Errorf("at %v seen at %v, want %v units", c.now, e.Seen, int64(c.seen))
		}
	}
}
