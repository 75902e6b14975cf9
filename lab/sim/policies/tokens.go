package policies

import (
	"math/bits"

	"proffer/lab/sim"
)

// tokens are the idle cores that one LB knows of: each idle report is one, of a
// server at most as many as it has cores, the newest. The token of the fastest
// class comes first, inside a class the newest: a server's second token stands
// behind newer ones of other servers.
type tokens struct {
	all     []token
	unused  int32      // the first of those that are free, linked by older
	first   []int32    // of each server, its newest
	count   []int32    // of each server
	most    []int32    // of each server: its cores
	newest  [256]int32 // of each metric
	any     [4]uint64  // which metrics have a token
	reports uint64
}

type token struct {
	server, before int32 // before: the server's next older one
	newer, older   int32 // inside the metric
	metric         uint8
	reported       uint64 // the how-manieth report
}

func NewTokens(farm []sim.Server) *tokens {
	t := &tokens{unused: sim.None, count: make([]int32, len(farm))}
	for _, s := range farm {
		t.first = append(t.first, sim.None)
		t.most = append(t.most, int32(s.Cores))
	}
	for m := range t.newest {
		t.newest[m] = sim.None
	}
	return t
}

// Add is an idle report.
func (t *tokens) Add(server int32, metric uint8) {
	if t.count[server] == t.most[server] {
		t.remove(t.oldest(server))
	}
	i := t.unused
	if i == sim.None {
		t.all = append(t.all, token{})
		i = int32(len(t.all) - 1)
	} else {
		t.unused = t.all[i].older
	}
	t.reports++
	t.all[i] = token{server, t.first[server], sim.None, t.newest[metric], metric, t.reports}
	if older := t.newest[metric]; older != sim.None {
		t.all[older].newer = i
	}
	t.newest[metric], t.first[server] = i, i
	t.any[metric/64] |= 1 << (metric % 64)
	t.count[server]++
}

func (t *tokens) oldest(server int32) int32 {
	i := t.first[server]
	for t.all[i].before != sim.None {
		i = t.all[i].before
	}
	return i
}

// Drop is a report that the server is not idle.
func (t *tokens) Drop(server int32) {
	for t.first[server] != sim.None {
		t.remove(t.first[server])
	}
}

func (t *tokens) remove(i int32) {
	k := &t.all[i]
	if k.newer != sim.None {
		t.all[k.newer].older = k.older
	} else if t.newest[k.metric] = k.older; k.older == sim.None {
		t.any[k.metric/64] &^= 1 << (k.metric % 64)
	}
	if k.older != sim.None {
		t.all[k.older].newer = k.newer
	}
	link := &t.first[k.server]
	for *link != i {
		link = &t.all[*link].before
	}
	*link = k.before
	t.count[k.server]--
	k.older, t.unused = t.unused, i
}

// Take uses up one token and names its server; none if there is no token.
func (t *tokens) Take() int32 {
	fastest := t.fastest()
	if fastest < 0 {
		return sim.None
	}
	best := t.newest[fastest]
	for m := fastest + 1; m <= min(fastest+sameClass, 255); m++ {
		if k := t.newest[m]; k != sim.None && t.all[k].reported > t.all[best].reported {
			best = k
		}
	}
	t.remove(best)
	return t.all[best].server
}

func (t *tokens) fastest() int {
	for i, word := range t.any {
		if word != 0 {
			return 64*i + bits.TrailingZeros64(word)
		}
	}
	return -1
}
