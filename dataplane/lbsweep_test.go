package dataplane

import (
	"testing"
	"time"

	"proffer/policy"
	"proffer/topo"
)

// life is what happens to a flow before it is left alone.
type life struct {
	what string
	live func(*testing.T, *lbRig)
	age  time.Duration // the longest that its entry may be silent
}

func say(flags byte) func(*testing.T, *lbRig) {
	return func(t *testing.T, r *lbRig) { r.send(t, inward(huntPort, flags).frame()) }
}

func told(flags byte) func(*testing.T, *lbRig) {
	return func(t *testing.T, r *lbRig) {
		r.send(t, signalFrom(1, outward(huntPort, flags), remove, policy.Generation(clientISN)))
	}
}

func all(steps ...func(*testing.T, *lbRig)) func(*testing.T, *lbRig) {
	return func(t *testing.T, r *lbRig) {
		for _, step := range steps {
			step(t, r)
		}
	}
}

// testSweepFlows: an entry goes when its time has run out, not before: the
// lingering after both sides closed or the server reset, the idle one otherwise.
func testSweepFlows(t *testing.T, seen hits) {
	const idle, linger = 5 * time.Minute, 10 * time.Second
	r := newLBRig(t, seen, hunting(2, 4))
	for _, c := range []life{
		{"established", say(ack), idle},
		{"client closed", say(fin | ack), idle},
		{"server closed", told(fin | ack), idle},
		{"both closed", all(say(fin|ack), told(fin|ack)), linger},
		{"both closed, server first", all(told(fin|ack), say(fin|ack)), linger},
		{"reset by the server", told(rst), linger},
		{"forged client RST", say(rst | ack), idle},
	} {
		r.at(t, start)
		r.learn(t, 1, clientISN)
		c.live(t, r)
		for _, s := range []struct {
			after time.Duration
			want  Swept
		}{{-time.Second, Swept{Kept: 1}}, {c.age, Swept{Kept: 1}}, {c.age + 2*unit, Swept{Removed: 1}}, {c.age + 3*unit, Swept{}}} {
			r.at(t, start+s.after)
			got, err := r.Sweep()
			if err != nil || got != s.want {
				t.Errorf("%s, after %v: %+v, %v, want %+v", c.what, s.after, got, err, s.want)
			}
		}
	}
	testTouch(t, r)
	testLongestAge(t)
	testSweepTurns(t)
}

// testLongestAge: the longest time that may be configured is one that the table can
// tell, for as long as some rounds of the sweep take.
func testLongestAge(t *testing.T) {
	enter(t)
	cfg := lbConfig(hunting(2, 4))
	cfg.Flows.Idle = topo.MaxAge
	r := lbRigOf(t, hits{}, cfg)
	for after, want := range map[time.Duration]Swept{
		topo.MaxAge:               {Kept: 1},
		topo.MaxAge + 2*unit:      {Removed: 1},
		topo.MaxAge + time.Minute: {Removed: 1},
	} {
		r.at(t, start)
		r.learn(t, 1, clientISN)
		r.at(t, start+after)
		if got, err := r.Sweep(); err != nil || got != want {
			t.Errorf("%v old: %+v, %v, want %+v", after, got, err, want)
		}
		r.table.empty(t)
	}
}

// testSweepTurns: a table is swept in turns, and what each of them kept is told until it
// is its turn again.
func testSweepTurns(t *testing.T) {
	enter(t)
	cfg := lbConfig(hunting(2, 4))
	cfg.Flows.Entries = 10_000
	r := lbRigOf(t, hits{}, cfg)
	r.at(t, start)
	word := lbEntry{Fingerprint: uint64(start/unit) & 0xffff, Word: wordOf(1)}
	var first, second policy.Flow // of the lines of the first turn, and of the second one
	for i := uint32(1); first == second || r.turnOf(first) != 0 || r.turnOf(second) != 1; i++ {
		f := crowdFlow(i).flow()
		if r.turnOf(f) == 0 {
			first = f
		} else {
			second = f
		}
	}
	for _, f := range []policy.Flow{first, second} {
		fp, _ := r.table.places(f)
		r.table.put(t, f, lbEntry{word.Fingerprint | fp<<digestShift, word.Word})
	}
	for i, step := range []struct {
		after time.Duration
		want  Swept
	}{
		{0, Swept{Kept: 1}},
		{0, Swept{Kept: 2}},
		{0, Swept{Kept: 2}},
		{0, Swept{Kept: 2}},
		{0, Swept{Kept: 2}},
		{cfg.Flows.Idle + 2*unit, Swept{Kept: 1, Removed: 1}},
		{cfg.Flows.Idle + 2*unit, Swept{Removed: 1}},
		{cfg.Flows.Idle + 2*unit, Swept{}},
	} {
		r.at(t, start+step.after)
		if got, err := r.SweepTurn(); err != nil || got != step.want {
			t.Errorf("turn %d: %+v, %v, want %+v", i, got, err, step.want)
		}
	}
	if first, past := r.turnsLine(0), r.turnsLine(sweepTurns); first != 0 || past != r.lines {
		t.Errorf("the turns are from line %d to %d, of %d", first, past, r.lines)
	}
}

// turnOf is the turn of the line where put puts a flow.
func (r *lbRig) turnOf(f policy.Flow) (turn int) {
	_, lines := r.table.places(f)
	for lines[0] >= r.turnsLine(turn+1) {
		turn++
	}
	return turn
}

// testTouch: a packet renews its entry, as exactly as the entry can say.
func testTouch(t *testing.T, r *lbRig) {
	r.learn(t, 1, clientISN)
	for _, c := range []struct{ now, seen time.Duration }{
		{start, start / unit},
		{start + unit, start/unit + 1},
		{start + time.Hour, (start + time.Hour) / unit},
	} {
		r.at(t, c.now)
		r.send(t, inward(huntPort, ack).frame())
		if e, _ := r.flow(t, inward(huntPort, ack).flow()); e.Seen != c.seen*unit {
			t.Errorf("at %v seen at %v, want %v units", c.now, e.Seen, int64(c.seen))
		}
	}
}
