package lines_test

import (
	"hash/maphash"
	"testing"
)

// walker goes through all that CPUs can do, each moment once.
type walker struct {
	*testing.T
	seed  maphash.Seed
	known map[uint64]bool
	turns []byte // whose they were, until now
}

func newWalker(t *testing.T) walker {
	return walker{T: t, seed: maphash.MakeSeed(), known: map[uint64]bool{}}
}

// walk goes through all that can come of a moment. steps tries each next step, a turn that changes the moment
// or returns false; judge is called with each moment, and whether it is the last.
func walk[M comparable](k *walker, m *M, steps func(m *M, try func(turn byte, can func(then *M) bool)), judge func(m *M, over bool)) {
	key := maphash.Comparable(k.seed, *m)
	if k.known[key] || k.Failed() {
		return
	}
	k.known[key] = true
	over := true
	steps(m, func(turn byte, can func(then *M) bool) {
		then := *m
		if !can(&then) {
			return
		}
		over = false
		k.turns = append(k.turns, turn)
		walk(k, &then, steps, judge)
		k.turns = k.turns[:len(k.turns)-1]
	})
	judge(m, over)
}
