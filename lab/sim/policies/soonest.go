package policies

import (
	"cmp"
	"math"
	"slices"

	"proffer/lab/sim"
)

// soonest finds the leaf that finishes a demand first, a leaf being a server or
// several that are alike. Leaves stand in the order of their speed, the fastest
// first; a node knows the least of each bound below it, so that a search that
// goes down the better branch first leaves out nearly all of the rest, however
// many speeds there are.
type soonest struct {
	half  int
	nodes []branch // 1 is the root, the leaves begin at half
	names []int32  // of each leaf, by position
	at    []int32  // the position of each leaf
}

type branch struct {
	ready
	pace
}

// pace is how long a unit of demand takes with a core to itself, 1 / speed, and
// with all cores of the server, 1 / power.
type pace struct{ alone, full float64 }

// ready bounds the end of a demand from below. A server without a core to spare
// completes some of the requests that it has before the instant ready[q], in ns, at
// the earliest, and q others slow the demand down for as long as it is there:
//
//	end ≥ min over q of max(ready[q], now) + (alone + q · full) · demand
//
// The instants do not rise with q, but for +Inf where so many never are there, and
// the last of them holds for any larger q.
type ready [4]float64

var (
	atOnce = all(math.Inf(-1)) // a core is to spare
	out    = all(math.Inf(1))  // takes no flows
)

func all(at float64) (r ready) {
	for q := range r {
		r[q] = at
	}
	return r
}

func (b *branch) least(x, y *branch) {
	for q := range b.ready {
		b.ready[q] = lesser(x.ready[q], y.ready[q])
	}
	b.alone, b.full = lesser(x.alone, y.alone), lesser(x.full, y.full)
}

func lesser(a, b float64) float64 {
	if b < a {
		return b
	}
	return a
}

// slack is the largest rounding error of a bound, in ns.
const slack = 1

func newSoonest(leaves []pace) *soonest {
	half := 1
	for half < len(leaves) {
		half *= 2
	}
	t := &soonest{half: half, nodes: make([]branch, 2*half), at: make([]int32, len(leaves))}
	for i := range leaves {
		t.names = append(t.names, int32(i))
	}
	slices.SortStableFunc(t.names, func(a, b int32) int { return cmp.Compare(leaves[a].alone, leaves[b].alone) })
	for i := range t.nodes {
		t.nodes[i] = branch{out, pace{math.Inf(1), math.Inf(1)}}
	}
	for i, name := range t.names {
		t.at[name] = int32(i)
		t.nodes[half+i].pace = leaves[name]
	}
	for node := half - 1; node > 0; node-- {
		t.nodes[node].least(&t.nodes[2*node], &t.nodes[2*node+1])
	}
	return t
}

// set gives a leaf the instants that bound it.
func (t *soonest) set(leaf int32, at ready) {
	node := t.half + int(t.at[leaf])
	t.nodes[node].ready = at
	for node > 1 {
		up := &t.nodes[node/2]
		other := &t.nodes[node^1].ready
		for q := range at {
			at[q] = lesser(at[q], other[q])
		}
		if up.ready == at {
			return
		}
		up.ready = at
		node /= 2
	}
}

func (b *branch) bound(now, demand float64) float64 {
	if b.ready[0] <= now {
		return now + float64(b.alone*demand)
	}
	return b.queued(now, demand)
}

// queued is bound where no core is to spare.
func (b *branch) queued(now, demand float64) float64 {
	needs, more := float64(b.alone*demand), float64(b.full*demand)
	least := b.ready[0] + needs
	for _, at := range b.ready[1:] {
		needs += more
		if at <= now {
			return lesser(least, now+needs)
		}
		if at == math.Inf(1) {
			break
		}
		least = lesser(least, at+needs)
	}
	return least
}

// look is a node on find's list.
type look struct {
	node  int32
	bound float64
}

// find returns the leaf that ends before best, and when; none if no leaf does. Of
// equals it is the lowest. end is asked for the truth about a leaf, given the
// best so far, and may raise the leaf's bound.
func (t *soonest) find(now, demand, best float64, end func(leaf int32, best float64) float64) (int32, float64) {
	at := int32(sim.None)
	var stack [32]look // a branch each level
	stack[0] = look{1, t.nodes[1].bound(now, demand)}
	for n := 1; n > 0; {
		n--
		next := stack[n]
		for worth(next.bound, best) && int(next.node) < t.half {
			left, right := 2*next.node, 2*next.node+1
			next = look{left, t.nodes[left].bound(now, demand)}
			worse := look{right, t.nodes[right].bound(now, demand)}
			if worse.bound < next.bound {
				next, worse = worse, next
			}
			if worth(worse.bound, best) {
				stack[n] = worse
				n++
			}
		}
		if !worth(next.bound, best) {
			continue
		}
		leaf := t.names[int(next.node)-t.half]
		if e := end(leaf, best); e < best || e == best && leaf < at {
			at, best = leaf, e
		}
	}
	return at, best
}

// worth reports that a leaf of this bound may end before best, or with it; a leaf
// that takes no flows has no end.
func worth(bound, best float64) bool { return bound <= best+slack && bound < math.MaxFloat64 }
