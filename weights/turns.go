package weights

import (
	"cmp"
	"slices"
)

// turns finds the servers that get too few flows to be learned. A server that was slow, and is not
// any more, shows that in new flows alone, and (flows + 1) / weight gives it none while faster servers
// are idle. So a server that began none of the last waitFlows · n flows of n servers is owed the next
// one, the longest wait first, as long as no more than one flow in oweOneIn is given so.
type turns struct {
	fresh  []uint64 // flows that each server began since the last step
	total  uint64   // of all servers, up to the last step
	begun  []uint64 // the total at the last step in which a server began a flow
	owed   []bool
	credit uint64 // flows that came since a server became owed a flow; oweOneIn for each
}

const (
	waitFlows = 64
	oweOneIn  = 64
)

func newTurns(n int) turns {
	return turns{fresh: make([]uint64, n), begun: make([]uint64, n), owed: make([]bool, n)}
}

// step returns the servers that are owed a flow, of those that take flows, until they begin it.
func (t *turns) step(takes func(server int) bool) (all []int) {
	t.count()
	var due []int
	for i := range t.begun {
		t.owed[i] = t.owed[i] && takes(i)
		switch {
		case t.owed[i]:
			all = append(all, i)
		case takes(i) && t.total-t.begun[i] > uint64(waitFlows*len(t.begun)):
			due = append(due, i)
		}
	}
	slices.SortStableFunc(due, func(a, b int) int { return cmp.Compare(t.begun[a], t.begun[b]) })
	for _, i := range due[:min(len(due), int(t.credit/oweOneIn))] {
		t.owed[i] = true
		t.credit -= oweOneIn
		all = append(all, i)
	}
	t.credit = min(t.credit, oweOneIn)
	return all
}

// count adds the flows since the last step, in whichever order they came.
func (t *turns) count() {
	sum := uint64(0)
	for _, n := range t.fresh {
		sum += n
	}
	t.total += sum
	t.credit += sum
	for i, n := range t.fresh {
		if n > 0 {
			t.begun[i], t.owed[i], t.fresh[i] = t.total, false, 0
		}
	}
}

// inherit gives server i the turn of server j of others. A server that joins has just begun a flow.
func (t *turns) inherit(i int, from *turns, j int) {
	if t.total == 0 {
		t.total = from.total
		for k := range t.begun {
			t.begun[k] = t.total
		}
	}
	t.begun[i] = from.begun[j]
}
