package policy

import (
	"math"
	"slices"
)

// Row is a row of an alias table (Walker 1977): two numbers, of which the first has a part of the row.
// Twin of bpf/table/alias.h.
type Row struct {
	Own, Other int
	Part       uint32 // of the row that is the own number's, less 1, in 2^-32
}

// At is the number at a place in the row, in 2^-32.
func (r Row) At(place uint32) int {
	if place <= r.Part {
		return r.Own
	}
	return r.Other
}

// Rows are an alias table. Its methods are the twins of bpf/lb/weighted_choice.h; they need a row.
type Rows []Row

// ByWeight is the number that a digest has.
func (r Rows) ByWeight(digest uint64) int {
	at := uint64(uint32(digest)) * uint64(len(r))
	return r[at>>32].At(uint32(at))
}

// InTurn is the number of a turn.
func (r Rows) InTurn(turn uint32) int {
	const golden, apart = 0x9e3779b9, 0xc13fa9a9
	i, round := turn%uint32(len(r)), turn/uint32(len(r))
	return r[i].At(round*golden + i*apart)
}

// Two are the own numbers of two different rows that a digest has; of a single row, the same twice.
func (r Rows) Two(digest uint64) (first, second int) {
	n := uint64(len(r))
	i := uint64(uint32(digest)) * n >> 32
	j := i + 1 + digest>>32*(n-1)>>32
	return r[i].Own, r[j%n].Own
}

// Alias makes the table in which each number with a share above 0 has a row of its own, and as much of
// all rows as its share of the sum, within 2^-32 of a row. The rows are in the order of the numbers.
func Alias(shares []float64) Rows {
	parts, sum := []float64(nil), 0.0
	var rows Rows
	for i, share := range shares {
		if share > 0 {
			rows = append(rows, Row{Own: i, Other: i, Part: math.MaxUint32})
			parts = append(parts, share)
			sum += share
		}
	}
	var small, large []int
	for i := range parts {
		parts[i] = float64(parts[i]/sum) * float64(len(rows))
		if parts[i] < 1 {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	for len(small) > 0 && len(large) > 0 { // Vose 1991: a large number fills a small number's row
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		rows[s].Part = uint32(max(0, math.Round(float64(parts[s]*(1<<32))-1)))
		rows[s].Other = rows[l].Own
		parts[l] -= 1 - parts[s]
		if parts[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	return slices.Clip(rows)
}
