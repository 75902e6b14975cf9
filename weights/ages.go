package weights

import (
	"math/bits"
	"time"
)

// An LB counts packets by the age of their flow, so that it knows how much of a core's
// load is how old. Class 0 are flows younger than AgeUnit, class 1 those younger than
// two units; from there on two classes an octave: 2k begins at 2^k units, 2k + 1 at
// 1.5 · 2^k units. The last class has no end.
//
// The halves make survival measurable without a look at flows: those that are from 2^k
// to 2^(k+1) units old now, and still there 2^k units later, are then exactly class 2k + 2.
const (
	Ages    = 20
	AgeUnit = time.Duration(1 << 24) // 16.8 ms: a shift of a clock in ns
)

// AgeClass is the class of a packet, age after its flow began.
func AgeClass(age time.Duration) int {
	units := uint64(max(0, age) / AgeUnit)
	if units < 2 {
		return int(units)
	}
	octave := bits.Len64(units) - 1
	return min(2*octave+int(units>>(octave-1)&1), Ages-1)
}

// Packets counts those of a service on a core, by class.
type Packets [Ages]uint64

// Total is the packets of all ages.
func (p *Packets) Total() (sum uint64) {
	for _, n := range p {
		sum += n
	}
	return sum
}

// ByAge is a load by class, 1 a whole core.
type ByAge [Ages]float64

// Sum is the load of the classes from a first to before a last.
func (b *ByAge) Sum(from, to int) (sum float64) {
	for _, load := range b[from:to] {
		sum += load
	}
	return sum
}

// Add adds the load of another core, or the part of the same core's that another LB
// sends.
func (b *ByAge) Add(other *ByAge) {
	for class, load := range other {
		b[class] += load
	}
}

// scale multiplies the load of each age.
func (b *ByAge) scale(factor float64) {
	for class := range b {
		b[class] *= factor
	}
}
