package sim

import (
	"cmp"
	"math"
	"slices"
)

// soonest finds the leaf that finishes a demand first, a leaf being a server or
// several that are alike. Leaves stand in the order of their speed, the fastest
// first; a node knows the least of each bound below it, so that a search that
// goes down the better branch first leaves out nearly all of the rest, however
// many speeds there are.
type soonest struct {
	half  int
	free  []float64 // of each node, ns: 1 is the root, the leaves begin at half
	pace  []pace    // of each node
	names []int32   // of each leaf, by position
	at    []int32   // the position of each leaf
}

// pace bounds the end of a demand from below. With a core to itself it takes
// alone · demand. A server that has none to spare either completes a request
// before, at the instant free at the earliest, or shares its cores with all that
// it has:
//
//	end ≥ max(now + alone · demand, min(max(free, now) + full · demand, now + crowd · demand))
type pace struct {
	alone, full float64 // 1 / speed, 1 / power
	crowd       float64 // +Inf: nothing is shared
}

func (p pace) least(q pace) pace {
	return pace{min(p.alone, q.alone), min(p.full, q.full), min(p.crowd, q.crowd)}
}

// slack is the largest rounding error of a bound, in ns.
const slack = 1

func newSoonest(leaves []pace) *soonest {
	half := 1
	for half < len(leaves) {
		half *= 2
	}
	t := &soonest{half: half, free: make([]float64, 2*half), pace: make([]pace, 2*half), at: make([]int32, len(leaves))}
	for i := range leaves {
		t.names = append(t.names, int32(i))
	}
	slices.SortStableFunc(t.names, func(a, b int32) int { return cmp.Compare(leaves[a].alone, leaves[b].alone) })
	for i := range t.free {
		t.free[i], t.pace[i] = math.Inf(1), pace{math.Inf(1), math.Inf(1), math.Inf(1)}
	}
	for i, name := range t.names {
		t.at[name] = int32(i)
		t.pace[half+i] = leaves[name]
	}
	for node := half - 1; node > 0; node-- {
		t.pace[node] = t.pace[2*node].least(t.pace[2*node+1])
	}
	return t
}

// set gives a leaf the instant before which it has no core free; +Inf takes it
// out of the running.
func (t *soonest) set(leaf int32, free float64) {
	node := t.half + int(t.at[leaf])
	t.free[node] = free
	for node > 1 {
		free = min(free, t.free[node^1])
		node /= 2
		if t.free[node] == free {
			return
		}
		t.free[node] = free
	}
}

func (t *soonest) bound(node int32, now, demand float64) float64 {
	p := &t.pace[node]
	b := max(t.free[node], now) + float64(p.full*demand)
	if p.crowd < math.Inf(1) {
		b = max(now+float64(p.alone*demand), min(b, now+float64(p.crowd*demand)))
	}
	return b
}

// look is a node on find's list.
type look struct {
	node  int32
	bound float64
}

// find returns the leaf that ends before best, and when; none if no leaf does. Of
// equals it is the lowest. end is asked for the truth about a leaf, given the
// best so far, and may answer +Inf if the leaf ends later than that.
func (t *soonest) find(now, demand, best float64, end func(leaf int32, best float64) float64) (int32, float64) {
	at := int32(none)
	var stack [64]look
	stack[0] = look{1, now}
	for n := 1; n > 0; {
		n--
		node := stack[n].node
		if b := stack[n].bound; b > best+slack || t.free[node] == math.Inf(1) {
			continue
		}
		if int(node) >= t.half {
			leaf := t.names[int(node)-t.half]
			if e := end(leaf, best); e < best || e == best && leaf < at {
				at, best = leaf, e
			}
			continue
		}
		better, worse := look{2 * node, t.bound(2*node, now, demand)}, look{2*node + 1, t.bound(2*node+1, now, demand)}
		if worse.bound < better.bound {
			better, worse = worse, better
		}
		stack[n], stack[n+1] = worse, better
		n += 2
	}
	return at, best
}
