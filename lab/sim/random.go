package sim

import (
	"math/bits"

	"proffer/policy"
)

// Draws is a random stream that is addressed, not consumed: number i is always
// the same, whichever caller asks, when and how often. So a request meets the same
// latencies and the same candidates under every policy.
type Draws uint64

func NewDraws(seed, stream uint64) Draws {
	return Draws(policy.Mix(policy.Mix(seed+Golden) + stream*Golden))
}

const Golden = 0x9e3779b97f4a7c15

func (d Draws) At(i uint64) uint64 { return policy.Mix(uint64(d) + i*Golden) }

// Below scales a random word to 0 … n − 1.
func Below(word uint64, n int) int {
	hi, _ := bits.Mul64(word, uint64(n))
	return int(hi)
}

// MaxChoices is the longest list of candidates that a policy may ask for.
const MaxChoices = 8

// Candidates fills list with different numbers under members, drawn from the
// flow's hash as policy.Candidates draws them, without its allocations.
func Candidates(list []int32, hash uint64, members int) {
	var taken [MaxChoices]int32 // ascending
	for i := range list {
		draw := int32(policy.Mix(hash+uint64(i+1)*Golden) >> 32 * uint64(members-i) >> 32)
		at := 0
		for ; at < i && draw >= taken[at]; at++ {
			draw++ // the draw-th of those left
		}
		copy(taken[at+1:i+1], taken[at:i])
		taken[at] = draw
		list[i] = draw
	}
}
