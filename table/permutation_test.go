package table

import "fmt"

// Permutations lists each server's permutation of m buckets as Build walks it,
// for figures and for FromPermutations; one of weight 0 has none.
func Permutations(servers []Server, m int) [][]int {
	p := make([][]int, len(servers))
	for i, server := range servers {
		if server.Weight == 0 {
			continue
		}
		w := newWalk(server.ID, m)
		for at := int(w.next); len(p[i]) < m; at = (at + int(w.step)) % m {
			p[i] = append(p[i], at)
		}
	}
	return p
}

// FromPermutations is Algorithm 3 of 6LB as printed, for explicit permutations
// of m buckets and turns in the order of p; nil stands for a server that is
// removed. Lists are shorter when there are fewer servers than c.
func FromPermutations(p [][]int, m, c int) (*Table, error) {
	if err := checkSize(len(p), m, c); err != nil {
		return nil, err
	}
	present := 0
	for i := range p {
		if p[i] == nil {
			continue
		}
		present++
		if !permutes(p[i], m) {
			return nil, fmt.Errorf("table: p[%d] is no permutation of 0 … %d", i, m-1)
		}
	}
	f := newFilling(m, min(c, present))
	next := make([]int, len(p))
	for f.open > 0 {
		for i := range p {
			f.turn(p[i], &next[i], uint16(i))
		}
	}
	return f.table(), nil
}

func permutes(p []int, m int) bool {
	seen := make([]bool, m)
	for _, bucket := range p {
		if bucket < 0 || bucket >= m || seen[bucket] {
			return false
		}
		seen[bucket] = true
	}
	return len(p) == m
}

// turn is the body of Algorithm 3's inner loop; next is its nextIndex[i].
func (f *filling) turn(p []int, next *int, server uint16) {
	for *next < len(p) && uint32(f.length[p[*next]]) == f.choices {
		*next++ // skip buckets with full lists
	}
	if *next == len(p) {
		return // permutation exhausted
	}
	bucket := p[*next]
	f.lists[bucket*int(f.choices)+int(f.length[bucket])] = server
	f.length[bucket]++
	f.open--
	*next++
}
