package policy

import (
	"math"
	"math/rand/v2"
	"testing"
)

// randomShares are n, some of them 0, that differ up to a hundred thousandfold.
func randomShares(rng *rand.Rand, n int) (shares []float64, sum float64) {
	shares = make([]float64, n)
	for i := range shares {
		if rng.IntN(4) > 0 || i == 0 {
			shares[i] = math.Exp(11 * rng.Float64())
		}
		sum += shares[i]
	}
	return shares, sum
}

// TestAlias: each number has as much of the rows as its share; without a share it has none.
func TestAlias(t *testing.T) {
	const seed = 9
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		shares, sum := randomShares(rng, 1+rng.IntN(300))
		rows := Alias(shares)
		got := make([]float64, len(shares))
		for _, r := range rows {
			part := (float64(r.Part) + 1) / (1 << 32)
			got[r.Own] += part / float64(len(rows))
			got[r.Other] += (1 - part) / float64(len(rows))
		}
		for i, share := range shares {
			if off := math.Abs(got[i] - share/sum); off > 1e-9 || share == 0 && got[i] != 0 {
				t.Fatalf("seed %d: number %d of %d has %v of all rows, want %v", seed, i, len(shares), got[i], share/sum)
			}
		}
	}
	for _, none := range [][]float64{nil, {0}, {0, 0}} {
		if rows := Alias(none); len(rows) != 0 {
			t.Errorf("%v: %d rows", none, len(rows))
		}
	}
}

// TestInTurn: of any number of turns each number has its share, but for a few; alike ones have turns in
// order.
func TestInTurn(t *testing.T) {
	const seed, turns = 10, 100_000
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		shares, sum := randomShares(rng, 1+rng.IntN(60))
		rows := Alias(shares)
		got, first := make([]int, len(shares)), rng.Uint32N(1<<31)
		for turn := range uint32(turns) {
			got[rows.InTurn(first+turn)]++
		}
		// A row's turns go to its own number as a sequence of the golden ratio has it: off by less
		// than log of the rounds each.
		most := float64(len(rows)) * 4
		for i, share := range shares {
			if off := math.Abs(float64(got[i]) - share/sum*turns); off > most {
				t.Errorf("seed %d: number %d of %d had %d turns of %d, %.0f off", seed, i, len(shares), got[i], turns, off)
			}
		}
	}
	alike := Alias([]float64{1, 0, 1, 1})
	for turn, want := range []int{0, 2, 3, 0, 2, 3, 0} {
		if got := alike.InTurn(uint32(turn)); got != want {
			t.Errorf("turn %d: number %d, want %d", turn, got, want)
		}
	}
}

// TestByWeight: numbers come as often as their weights have it (χ²), two different ones alike often.
func TestByWeight(t *testing.T) {
	const seed, draws = 11, 200_000
	rng := rand.New(rand.NewPCG(seed, 0))
	rows := Alias([]float64{1, 2, 0, 3, 10})
	got, pairs := make([]int, 5), map[[2]int]int{}
	for range draws {
		digest := rng.Uint64()
		got[rows.ByWeight(digest)]++
		a, b := rows.Two(digest)
		pairs[[2]int{a, b}]++
	}
	chi := 0.0
	for i, want := range []float64{1. / 16, 2. / 16, 0, 3. / 16, 10. / 16} {
		if want == 0 {
			if got[i] != 0 {
				t.Errorf("number %d has no share, and came %d times", i, got[i])
			}
			continue
		}
		off := float64(got[i]) - want*draws
		chi += off * off / (want * draws)
	}
	if chi > 21.1 { // 3 degrees of freedom: one of 10,000
		t.Errorf("seed %d: χ² is %.1f for %v", seed, chi, got)
	}
	if len(pairs) != 4*3 {
		t.Errorf("%d pairs of four numbers: %v", len(pairs), pairs)
	}
	for pair, n := range pairs {
		if off := math.Abs(float64(n)*12/draws - 1); pair[0] == pair[1] || off > 0.05 {
			t.Errorf("seed %d: %v came %d times", seed, pair, n)
		}
	}
	if a, b := Alias([]float64{0, 1}).Two(rng.Uint64()); a != 1 || b != 1 {
		t.Errorf("two of one: %d and %d", a, b)
	}
}
