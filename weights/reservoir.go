package weights

// Reservoir keeps k samples of a stream (HLB Algorithm 1): a new sample takes the
// place of a random old sample, so that a sample survives a geometrically
// distributed number of others and fresh samples weigh most. The paper writes
// `randomId % N` with N the number of servers; k is meant. With latest it takes the place of the
// oldest, so that those kept are half as old on average.
type Reservoir struct {
	samples []float64
	filled  int
	sum     float64
	latest  bool
	oldest  int // the position of the oldest sample of a full reservoir, with latest
}

// NewReservoir returns an empty reservoir of k ≥ 1 samples.
func NewReservoir(k int) Reservoir { return Reservoir{samples: make([]float64, k)} }

// Add stores x in the position that random names. The first k samples fill the
// reservoir in order, so that its mean is of real samples from the first on.
func (r *Reservoir) Add(x float64, random uint64) {
	if r.filled < len(r.samples) {
		r.samples[r.filled] = x
		r.filled++
		r.sum += x
		return
	}
	at := int((random >> 32) * uint64(len(r.samples)) >> 32)
	if r.latest {
		at, r.oldest = r.oldest, (r.oldest+1)%len(r.samples)
	}
	r.sum += x - r.samples[at]
	r.samples[at] = x
}

// condensed is how many samples the old samples count as.
const condensed = 8

// condense makes many samples a few, each their mean.
func (r *Reservoir) condense() {
	if r.filled <= condensed {
		return
	}
	mean := r.Mean()
	r.filled, r.sum, r.oldest = condensed, condensed*mean, 0
	for i := range r.samples[:condensed] {
		r.samples[i] = mean
	}
}

// Len is the number of samples held, at most k.
func (r *Reservoir) Len() int { return r.filled }

// Mean of the samples; 0 of none.
func (r *Reservoir) Mean() float64 {
	if r.filled == 0 {
		return 0
	}
	return r.sum / float64(r.filled)
}
