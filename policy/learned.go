package policy

import "math"

// A server's speed as bpf/lb/occupancy.h computes with it: its inverse, beside the fastest server's.
const (
	InverseOne  = 1 << 16                 // the fastest server's
	MostInverse = 1 << 24                 // a server of less than a 256th of the largest weight counts as a server with that
	MostScore   = 1<<37 - 2               // scores above are alike
	NoInverse   = uint32(0)               // of a server that gets no new flows
	MostFlows   = MostScore / MostInverse // up to which the score of every server is exact
)

// Inverses are the inverses of weights, of which those that are 0 get no new flows. Each is off by
// 2^-17 of it at most.
func Inverses(weights []float64) []uint32 {
	most := 0.0
	for _, w := range weights {
		most = max(most, w)
	}
	inverses := make([]uint32, len(weights))
	for i, w := range weights {
		if w > 0 {
			inverses[i] = uint32(math.Round(min(InverseOne*(most/w), MostInverse)))
		}
	}
	return inverses
}

// Score is how dear a server with so many flows is for a flow more (HLB §IV-C): leaf_of of
// bpf/lb/occupancy.h.
func Score(flows uint64, inverse uint32) uint64 {
	return min((flows+1)*uint64(inverse), MostScore)
}
