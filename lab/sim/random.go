package sim

import (
	"math/bits"

	"proffer/policy"
)

// draws is a random stream that is addressed, not consumed: number i is always
// the same, whichever caller asks, when and how often. So a request meets the same
// latencies and the same candidates under every policy.
type draws uint64

func newDraws(seed, stream uint64) draws {
	return draws(policy.Mix(policy.Mix(seed+golden) + stream*golden))
}

const golden = 0x9e3779b97f4a7c15

func (d draws) at(i uint64) uint64 { return policy.Mix(uint64(d) + i*golden) }

// below scales a random word to 0 … n − 1.
func below(word uint64, n int) int {
	hi, _ := bits.Mul64(word, uint64(n))
	return int(hi)
}

// maxChoices is the longest list of candidates that a policy may ask for.
const maxChoices = 8

// candidates fills list with different numbers under members, drawn from the
// flow's hash as policy.Candidates draws them, without its allocations.
func candidates(list []int32, hash uint64, members int) {
	var taken [maxChoices]int32 // ascending
	for i := range list {
		draw := int32(policy.Mix(hash+uint64(i+1)*golden) >> 32 * uint64(members-i) >> 32)
		at := 0
		for ; at < i && draw >= taken[at]; at++ {
			draw++ // the draw-th of those left
		}
		copy(taken[at+1:i+1], taken[at:i])
		taken[at] = draw
		list[i] = draw
	}
}
