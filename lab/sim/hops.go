package sim

import "math"

// action is the engine's step when an event is due.
type action uint8

const (
	atLB        action = iota // the SYN reaches the LB
	atServer                  // the SYN, an offer if it hunts, reaches a server
	returned                  // a returned offer reaches the server that must take it
	Data                      // the request reaches the server that accepted
	accepted                  // the accepting SYN-ACK passes the LB
	closing                   // the flow's end reaches the LB
	Ticking                   // a periodic job; request is its number
	shifting                  // background work begins or ends; request is its number
	happening                 // an event of the farm; request is its number
	arriving                  // a message of the policy arrives; request is its number
	established               // the first data of the flow passes its LB
	redrawing                 // an antagonist changes its share; request is its server
	spoofing                  // a SYN with a forged source reaches an LB
	expiring                  // an LB forgets such a SYN; request is its number
)

// Coming is a packet on its way, or a timer.
type Coming struct {
	At      int64 // ns
	Order   uint32
	Kind    action
	Request int32
}

// Hops is a 4-ary heap of events by (at, order). Completions are not in it, so
// that it holds only the packets on their way: a handful.
type Hops struct {
	Heap  []Coming
	Order uint32
}

func (h *Hops) Push(at int64, kind action, request int32) {
	h.Order++
	e := Coming{at, h.Order, kind, request}
	h.Heap = append(h.Heap, e)
	heap, i := h.Heap, len(h.Heap)-1
	for i > 0 {
		up := (i - 1) / 4
		if !before(&e, &heap[up]) {
			break
		}
		heap[i] = heap[up]
		i = up
	}
	heap[i] = e
}

func (h *Hops) Pop() Coming {
	heap := h.Heap
	first, last := heap[0], heap[len(heap)-1]
	heap = heap[:len(heap)-1]
	h.Heap = heap
	i := 0
	for {
		down := 4*i + 1
		if down >= len(heap) {
			break
		}
		least := down
		for c := down + 1; c < min(down+4, len(heap)); c++ {
			if before(&heap[c], &heap[least]) {
				least = c
			}
		}
		if !before(&heap[least], &last) {
			break
		}
		heap[i] = heap[least]
		i = least
	}
	if len(heap) > 0 {
		heap[i] = last
	}
	return first
}

func before(a, b *Coming) bool {
	return a.At < b.At || a.At == b.At && int32(a.Order-b.Order) < 0
}

// Never is later than anything.
const Never = math.MaxInt64

// alarms holds one instant for each station, its next completion, as a
// tournament tree: setting one costs log₂ of their number, the first is at the
// root. Of equals the lowest number is first.
type alarms struct {
	tree []int64 // 1 is the root, the leaves begin at half
	half int
}

func NewAlarms(n int) alarms {
	half := 1
	for half < n {
		half *= 2
	}
	a := alarms{tree: make([]int64, 2*half), half: half}
	for i := range a.tree {
		a.tree[i] = Never
	}
	return a
}

func (a *alarms) Set(i int32, at int64) {
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

// First is the earliest instant, earliest its station.
func (a *alarms) First() int64 { return a.tree[1] }

func (a *alarms) Earliest() int32 {
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
