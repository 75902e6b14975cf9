package policy

import (
	"math/rand/v2"
	"testing"

	"proffer/topo"
)

// TestSipHashVectors holds SipHash against the reference vectors of
// SipHash-2-4 (github.com/veorq/SipHash, vectors.h): key 00 01 … 0f, message
// 00 01 … n-1, for the lengths that are whole words.
func TestSipHashVectors(t *testing.T) {
	var key topo.Key
	for i := range key {
		key[i] = byte(i)
	}
	for n, want := range map[int]uint64{
		0:  0x726fdb47dd0e0e31,
		8:  0x93f5f5799a932462,
		16: 0x3f2acc7f57c29bdb,
		24: 0xb8ad50c6f649af94,
		40: 0x0e3ea96b5304a7d0,
		56: 0xb78dbfaf3a8d83bd,
	} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i)
		}
		if got := SipHash(key, data); got != want {
			t.Errorf("of %d bytes: %016x, want %016x", n, got, want)
		}
	}
}

// TestMixVectors: SplitMix64 seeded with 0 and 1234567 (Vigna's splitmix64.c);
// its n-th output is Mix(seed + n·γ).
func TestMixVectors(t *testing.T) {
	const gamma = 0x9e3779b97f4a7c15
	for _, c := range []struct {
		seed uint64
		want []uint64
	}{
		{0, []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f}},
		{1234567, []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423}},
	} {
		state := c.seed
		for i, want := range c.want {
			if state += gamma; Mix(state) != want {
				t.Errorf("seed %d, output %d: %#x, want %#x", c.seed, i, Mix(state), want)
			}
		}
	}
}

// TestCandidatesDiffer: a list has the right length and no server twice, whatever
// the numbers of members and choices.
func TestCandidatesDiffer(t *testing.T) {
	for members := 0; members <= 9; members++ {
		for choices := 1; choices <= topo.MaxChoices; choices++ {
			for h := range uint64(500) {
				list := Candidates(Mix(h), members, choices)
				if len(list) != min(members, choices) {
					t.Fatalf("%d members, %d choices: list %v", members, choices, list)
				}
				seen := map[int]bool{}
				for _, at := range list {
					if at < 0 || at >= members || seen[at] {
						t.Fatalf("%d members, %d choices: list %v", members, choices, list)
					}
					seen[at] = true
				}
			}
		}
	}
}

// TestCandidatesUniform: every ordered pair is as likely as any other, by a
// chi-square test over a fixed seed. With 12 members there are 131 degrees of
// freedom: 99.9 % of all seeds stay under 185.
func TestCandidatesUniform(t *testing.T) {
	const members, draws, limit = 12, 200_000, 185.0
	const seed = 20261121
	rng := rand.New(rand.NewPCG(seed, 0))
	var seen [members][members]int
	for range draws {
		list := Candidates(rng.Uint64(), members, 2)
		seen[list[0]][list[1]]++
	}
	expect := float64(draws) / (members * (members - 1))
	sum := 0.0
	for i := range seen {
		for j, n := range seen[i] {
			if i != j {
				d := float64(n) - expect
				sum += d * d / expect
			}
		}
	}
	if sum > limit {
		t.Errorf("chi-square of ordered pairs is %.1f, want under %.0f (seed %d)", sum, limit, seed)
	}
}
