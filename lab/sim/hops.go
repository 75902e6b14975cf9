package sim

import "math"

// action is the engine's step when an event is due.
type action uint8

const (
	atLB        action = iota // the SYN reaches the LB
	atServer                  // the SYN, an offer if it hunts, reaches a server
	returned                  // a returned offer reaches the server that must take it
	data                      // the request reaches the server that accepted
	accepted                  // the accepting SYN-ACK passes the LB
	closing                   // the flow's end reaches the LB
	ticking                   // a periodic job; request is its number
	shifting                  // background work begins or ends; request is its number
	happening                 // an event of the farm; request is its number
	arriving                  // a message of the policy arrives; request is its number
	established               // the first data of the flow passes its LB
	redrawing                 // an antagonist changes its share; request is its server
	spoofing                  // a SYN with a forged source reaches an LB
	expiring                  // an LB forgets such a SYN; request is its number
)

// event is a packet on its way, or a timer.
type event struct {
	at      int64 // ns
	order   uint32
	kind    action
	request int32
}

// hops is a 4-ary heap of events by (at, order). Completions are not in it, so
// that it holds only the packets on their way: a handful.
type hops struct {
	heap  []event
	order uint32
}

func (h *hops) push(at int64, kind action, request int32) {
	h.order++
	e := event{at, h.order, kind, request}
	h.heap = append(h.heap, e)
	heap, i := h.heap, len(h.heap)-1
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

func (h *hops) pop() event {
	heap := h.heap
	first, last := heap[0], heap[len(heap)-1]
	heap = heap[:len(heap)-1]
	h.heap = heap
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

func before(a, b *event) bool {
	return a.at < b.at || a.at == b.at && int32(a.order-b.order) < 0
}

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
