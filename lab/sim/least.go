package sim

import "math"

// Least finds the server with the least key in log₂ N, and of several that have it a random
// one, or the one that changed longest ago: a tournament tree with nodes that hold the least
// key below, its count and its first turn. So a policy that looks at all servers need not walk
// them.
type Least struct {
	tree  []rank
	half  int
	turns bool   // of equal keys the first turn is the least
	turn  uint32 // the last one
}

type rank struct {
	key  float64
	ties int32
	turn uint32
}

// NewLeast starts with the key +Inf for all n servers: out of the running.
func NewLeast(n int) *Least {
	half := 1
	for half < n {
		half *= 2
	}
	l := &Least{tree: make([]rank, 2*half), half: half}
	for i := range l.tree {
		l.tree[i] = rank{key: math.Inf(1)}
	}
	return l
}

// InTurn makes the server the least that changed longest ago, of those with the least key, as the
// LB's programs have it (bpf/lb/occupancy.h). Those that never did have the turns of an order, which
// no two LBs should share: they would send the first flows of all to one server after the other.
func (l *Least) InTurn(order []int) {
	l.turns, l.turn = true, uint32(len(order))
	for turn, server := range order {
		l.tree[l.half+server].turn = uint32(turn)
	}
	l.build()
}

// Change is set of a server that has its turn again after all others.
func (l *Least) Change(server int32, key float64) {
	if l.turns {
		l.turn++
		l.tree[l.half+int(server)].turn = l.turn
	}
	l.Set(server, key)
}

func (l *Least) Key(server int32) float64 { return l.tree[l.half+int(server)].key }

// Set gives the server a key; +Inf takes it out of the running.
func (l *Least) Set(server int32, key float64) {
	node := l.half + int(server)
	l.put(node, key)
	tree := l.tree
	r := tree[node]
	for node > 1 {
		r = better(r, tree[node^1])
		node /= 2
		if tree[node] == r {
			return
		}
		tree[node] = r
	}
}

// SetAll gives every server its key, in linear time.
func (l *Least) SetAll(keys []float64) {
	for i, key := range keys {
		l.put(l.half+i, key)
	}
	l.build()
}

// build makes the nodes of the leaves.
func (l *Least) build() {
	for node := l.half - 1; node > 0; node-- {
		l.tree[node] = better(l.tree[2*node], l.tree[2*node+1])
	}
}

// put gives a leaf its key; its turn stays.
func (l *Least) put(leaf int, key float64) {
	l.tree[leaf].key, l.tree[leaf].ties = key, 1
	if key == math.Inf(1) {
		l.tree[leaf].ties = 0
	}
}

func better(a, b rank) rank {
	switch {
	case a.key < b.key:
		return a
	case b.key < a.key:
		return b
	}
	return rank{a.key, a.ties + b.ties, min(a.turn, b.turn)}
}

// Best is the least key; +Inf if no server is in the running.
func (l *Least) Best() float64 { return l.tree[1].key }

// Choose returns one of the servers that have the least key, by turn or by the random word; −1
// if no server is in the running.
func (l *Least) Choose(word uint64) int32 {
	tree := l.tree
	first := tree[1]
	if first.ties == 0 {
		return -1
	}
	nth := int32(Below(word, int(first.ties)))
	node := 1
	for node < l.half {
		node *= 2
		switch left := tree[node]; {
		case left.key != first.key || l.turns && left.turn != first.turn:
			node++
		case !l.turns && nth >= left.ties:
			nth -= left.ties
			node++
		}
	}
	return int32(node - l.half)
}
