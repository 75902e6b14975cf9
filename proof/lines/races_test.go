package lines_test

import (
	"slices"
	"testing"
	"time"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
)

const (
	embryonic = 3 | 99<<16 // a word
	reset     = 3 | rig.WordEstablished | 99<<16 | 4<<48
	other     = 1 << 53 // in a word: another service
	idle      = 2 * time.Minute
	recent    = 5 * time.Second
)

func add(flow int) deed                     { return addAs(flow, rig.WordOf(flow)) }
func addAs(flow int, word uint64) deed      { return deed{call: "flow_add", flow: flow, word: word} }
func find(flow int) deed                    { return deed{call: "flow_find", flow: flow} }
func seek(flow int) deed                    { return deed{call: "flow_seek", flow: flow} }
func becomes(flow int, was, to uint64) deed { return deed{"flow_change", flow, was, to} }
func removeFlow(flow int) deed              { return becomes(flow, rig.WordOf(flow), 0) }
func sweepLine(line int) deed               { return deed{call: "sweep_flow_line", flow: line} }

// among makes flow 0 one of eight that fill lines 0 and 1, whose others can go nowhere
// else, and 8 the next that wants to be there. More flows follow.
func among(first spot, more ...spot) []spot {
	return slices.Concat([]spot{first}, slices.Repeat([]spot{{0, 1}}, 8), more)
}

// filled is lines 0 and 1 with the given first entry.
func filled(word uint64, age time.Duration) []entry {
	all := []entry{{0, 0, word, age}}
	for i := 1; i < 8; i++ {
		all = append(all, entry{uint32(i / 4), i, rig.WordOf(i), 0})
	}
	return all
}

// crammed is that and line 2, whose first entry alone can leave it.
func crammed(word uint64, age time.Duration) ([]spot, []entry) {
	spots := among(spot{0, 2}, spot{2, 3}, spot{2, 2}, spot{2, 2}, spot{2, 2}, spot{2, 2})
	has := append(filled(rig.WordOf(0), 0), entry{2, 9, word, age})
	for i := 10; i < 13; i++ {
		has = append(has, entry{2, i, rig.WordOf(i), 0})
	}
	return spots, has
}

// alone is an entry in a line.
func alone(line uint32, word uint64, age time.Duration) []entry {
	return []entry{{line, 0, word, age}}
}

// races are those in which an entry moves, then those in which embryonic entries make room or
// have waited too long, those of two adds, and those of one entry that stays.
func races() []race {
	const waited = 30 * time.Second
	out, primary, still := spot{0, 2}, spot{2, 0}, spot{0, 1}
	full8 := filled(rig.WordOf(0), 0)
	beside := []spot{still, still}
	idle8, crowd := filled(rig.WordOf(0), idle), filled(rig.WordOf(0)|other, recent)
	for i := range crowd {
		crowd[i].word |= other
	}
	crammedAt, crammedWith := crammed(embryonic, 0)
	_, crammedVoid := crammed(embryonic, waited)
	_, crammedOver := crammed(reset, recent)
	removeOver := becomes(9, reset, 0)
	do := func(a, b []deed) [2][]deed { return [2][]deed{a, b} }
	d := func(all ...deed) []deed { return all }
	return []race{
		{"found while it moves out", among(out), full8, do(d(add(8)), d(find(0))), 0},
		{"found while it moves to its primary line", among(primary), full8, do(d(add(8)), d(find(0))), 0},
		{"sought while it moves out", among(out), full8, do(d(add(8)), d(seek(0))), 0},
		{"sought while it moves to its primary line", among(primary), full8, do(d(add(8)), d(seek(0))), 0},
		{"changed while it moves", among(out), full8,
			do(d(add(8)), d(becomes(0, rig.WordOf(0), rig.WordOf(5)), find(0))), balk | full},
		{"removed while it moves, and its place taken", among(out, spot{0, 3}), full8,
			do(d(add(8)), d(removeFlow(0), addAs(9, rig.WordOf(0)))), balk | full},
		{"removed while it moves, and added", among(out), full8,
			do(d(add(8)), d(removeFlow(0), addAs(0, rig.WordOf(6)))), balk | full | withdraw},
		{"added again while it moves to its primary line", among(primary), full8, do(d(add(8)), d(addAs(0, rig.WordOf(9)))), 0},
		{"added again while it moves out", among(out), full8, do(d(add(8)), d(addAs(0, rig.WordOf(9)))), full},
		{"two want the one place that can be made", among(out, still), full8, do(d(add(8)), d(add(9))), full},
		{"a free entry is taken, not moved", among(still, spot{1, 3}, spot{3, 2}), full8,
			do(d(add(8)), d(removeFlow(7), add(9), add(10))), full},

		{"an embryonic entry is established that would make room", among(still), filled(embryonic, 0),
			do(d(add(8)), d(becomes(0, embryonic, rig.WordOf(1)))), evict | full},
		{"an embryonic entry is established that would make room in the other line", among(still), slices.Replace(filled(rig.WordOf(0), 0), 4, 5, entry{1, 4, embryonic, 0}),
			do(d(add(8)), d(becomes(4, embryonic, rig.WordOf(1)))), evict | full},
		{"an embryonic entry moves and would make room", crammedAt, crammedWith, do(d(add(8)), d(add(13))), evict | full},
		{"a void one moves and is added", crammedAt, crammedVoid, do(d(add(8)), d(add(9), add(13))), full | withdraw},
		{"a void one is added twice", beside, alone(1, embryonic, waited), do(d(add(0)), d(addAs(0, rig.WordOf(2)))), yield},
		{"a void one is added and is established", beside, alone(1, embryonic, waited),
			do(d(add(0)), d(becomes(0, embryonic, rig.WordOf(2)))), 0},
		{"a void one is added and swept", beside, alone(1, embryonic, waited), do(d(add(0)), d(sweepLine(1))), yield},

		{"an idle entry is found that would make room", among(still), idle8, do(d(add(8)), d(find(0))), evictQuiet | full},
		{"an idle entry is changed that would make room", among(still), idle8,
			do(d(add(8)), d(becomes(0, rig.WordOf(0), rig.WordOf(5)), find(0))), evictQuiet | full},
		{"an idle entry is removed that would make room, and its place taken", among(still, still), idle8,
			do(d(add(8)), d(removeFlow(0), add(9))), evictQuiet | full},
		{"an idle entry is removed that would make room, and added", among(still), idle8,
			do(d(add(8)), d(removeFlow(0), addAs(0, rig.WordOf(6)))), evictQuiet | full},
		{"two want an idle entry's place", among(still, still), idle8, do(d(add(8)), d(add(9))), evictQuiet | full},
		{"an idle entry is found that would make room in the other line", among(still),
			slices.Replace(filled(rig.WordOf(0), 0), 4, 5, entry{1, 4, rig.WordOf(4), idle}), do(d(add(8)), d(find(4))), evictQuiet | full},
		{"an expired entry is swept that would make room", among(still), filled(rig.WordOf(0), time.Hour), do(d(add(8)), d(sweepLine(0), find(0))), full},
		{"one that is over is closed again while it makes room", among(still), filled(reset, recent),
			do(d(add(8)), d(becomes(0, reset, reset|1<<48), find(0))), evictQuiet | full},
		{"an entry moves to the place of one that is over and is found", crammedAt, crammedOver, do(d(add(8)), d(find(9), find(0))), evictQuiet | full},
		{"an entry moves to the place of one that is over and is added", crammedAt, crammedOver, do(d(add(8)), d(removeOver, add(9))), balk | evictQuiet | full | withdraw},
		{"an entry in excess is found that would make room", among(still), crowd, do(d(add(8)), d(find(0))), evictQuiet | full},

		{"sought while it takes an idle entry's place", among(still), idle8, do(d(add(8)), d(seek(8), seek(0))), evictQuiet},
		{"sought while it is removed and added", beside, alone(0, rig.WordOf(0), 0), do(d(seek(0), seek(0)), d(removeFlow(0), addAs(0, rig.WordOf(3)))), 0},
		{"sought while its old place is taken", beside, alone(0, rig.WordOf(0), 0), do(d(seek(1)), d(removeFlow(0), add(1))), 0},

		{"added twice", beside, nil, do(d(add(0)), d(addAs(0, rig.WordOf(2)))), yield},
		{"added twice, in two lines", []spot{still, out, out, out}, []entry{{0, 1, rig.WordOf(1), 0}, {0, 2, rig.WordOf(2), 0}, {0, 3, rig.WordOf(3), 0}},
			do(d(add(0)), d(addAs(0, rig.WordOf(2)))), yield},
		{"added twice, the later one in front", beside, []entry{{0, 1, rig.WordOf(1), 0}},
			do(d(add(0)), d(removeFlow(1), addAs(0, rig.WordOf(3)))), yield},

		{"changed twice", beside, alone(0, rig.WordOf(0), 0), do(d(becomes(0, rig.WordOf(0), rig.WordOf(1))), d(becomes(0, rig.WordOf(0), rig.WordOf(2)))), 0},
		{"changed and removed", beside, alone(0, rig.WordOf(0), 0),
			do(d(becomes(0, rig.WordOf(0), rig.WordOf(1))), d(removeFlow(0), addAs(0, rig.WordOf(3)))), 0},
		{"changed and swept", beside, alone(0, rig.WordOf(0), time.Hour),
			do(d(sweepLine(0)), d(becomes(0, rig.WordOf(0), rig.WordOf(1)), find(0))), 0},
		{"removed and its place taken, while looked up", beside, alone(0, rig.WordOf(0), 0), do(d(find(0)), d(removeFlow(0), add(1))), 0},
		{"removed and its place taken, while changed", beside, alone(0, rig.WordOf(0), 0),
			do(d(becomes(0, rig.WordOf(0), rig.WordOf(3))), d(removeFlow(0), add(1))), 0},
		{"removed and its place taken, while swept", beside, alone(0, rig.WordOf(0), time.Hour), do(d(sweepLine(0)), d(removeFlow(0), add(1))), 0},
	}
}

// TestLineRaces: whatever two CPUs do to the table at the same time, and however their
// steps mingle, it ends as if one deed had followed the other; and nothing is allowed
// that never happens.
func TestLineRaces(t *testing.T) {
	spec, err := objects.LoadLB()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]any{"lines": uint32(fewLines), "virtual_time": true} {
		if err := spec.Variables[name].Set(value); err != nil {
			t.Fatal(err)
		}
	}
	c := codeOf(spec, "lb", "lb_signal", "lb_returned", "sweep_flows")
	for _, r := range races() {
		t.Run(r.what, func(t *testing.T) {
			k := newTrack(t, c, &r)
			k.walk(&k.start)
			k.fair()
			for flag := may(1); flag <= r.may; flag <<= 1 {
				if r.may&flag != 0 && within(k.met, k.serial(r.may&^flag)) && !t.Failed() {
					t.Errorf("it need not be allowed %#x", flag)
				}
			}
			t.Logf("%d moments, %d ends", len(k.known), len(k.met))
		})
	}
}

func within(a, b map[ended]bool) bool {
	for e := range a {
		if !b[e] {
			return false
		}
	}
	return true
}
