package sim

import "math"

// never is later than anything.
const never = math.MaxInt64

// alarms holds one instant for each station, its next completion, as a
// tournament tree: setting one costs log₂ of their number, the first is at the
// root. Of equals the lowest number is first.
type alarms struct {
	tree []int64 // 1 is the root, the leaves begin at half
	half int
}

func newAlarms(n int) alarms {
	half := 1
	for half < n {
		half *= 2
	}
	a := alarms{tree: make([]int64, 2*half), half: half}
	for i := range a.tree {
		a.tree[i] = never
	}
	return a
}

func (a *alarms) set(i int32, at int64) {
	tree := a.tree
	node := a.half + int(i)
	tree[node] = at
	for node > 1 {
		at = min(at, tree[node^1])
		node /= 2
		if tree[node] == at {
			return
		}
		tree[node] = at
	}
}

// first is the earliest instant, earliest its station.
func (a *alarms) first() int64 { return a.tree[1] }

func (a *alarms) earliest() int32 {
	tree := a.tree
	at := tree[1]
	node := 1
	for node < a.half {
		node *= 2
		if tree[node] != at {
			node++
		}
	}
	return int32(node - a.half)
}
