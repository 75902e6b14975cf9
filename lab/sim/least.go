package sim

import "math"

// least finds the server with the least key in log₂ N, and a random one of them
// if several have it: a tournament tree with nodes that hold the least key below and
// its count. So a policy that looks at all servers need not walk them.
type least struct {
	tree []rank
	half int
}

type rank struct {
	key  float64
	ties int32
}

// newLeast starts with the key +Inf for all n servers: out of the running.
func newLeast(n int) *least {
	half := 1
	for half < n {
		half *= 2
	}
	l := &least{tree: make([]rank, 2*half), half: half}
	for i := range l.tree {
		l.tree[i] = rank{math.Inf(1), 0}
	}
	return l
}

func (l *least) key(server int32) float64 { return l.tree[l.half+int(server)].key }

// set gives the server a key; +Inf takes it out of the running.
func (l *least) set(server int32, key float64) {
	node := l.half + int(server)
	r := rank{key, 1}
	if key == math.Inf(1) {
		r.ties = 0
	}
	tree := l.tree
	tree[node] = r
	for node > 1 {
		r = better(r, tree[node^1])
		node /= 2
		if tree[node] == r {
			return
		}
		tree[node] = r
	}
}

// setAll gives every server its key, in linear time.
func (l *least) setAll(keys []float64) {
	for i, key := range keys {
		l.tree[l.half+i] = rank{key, 1}
		if key == math.Inf(1) {
			l.tree[l.half+i].ties = 0
		}
	}
	for node := l.half - 1; node > 0; node-- {
		l.tree[node] = better(l.tree[2*node], l.tree[2*node+1])
	}
}

func better(a, b rank) rank {
	switch {
	case a.key < b.key:
		return a
	case b.key < a.key:
		return b
	}
	return rank{a.key, a.ties + b.ties}
}

// best is the least key; +Inf if no server is in the running.
func (l *least) best() float64 { return l.tree[1].key }

// choose returns one of the servers that have the least key, which one is up to
// the random word; −1 if no server is in the running.
func (l *least) choose(word uint64) int32 {
	tree := l.tree
	key, nth := tree[1].key, int32(below(word, int(tree[1].ties)))
	if tree[1].ties == 0 {
		return -1
	}
	node := 1
	for node < l.half {
		node *= 2
		if tree[node].key != key {
			node++
		} else if nth >= tree[node].ties {
			nth -= tree[node].ties
			node++
		}
	}
	return int32(node - l.half)
}
