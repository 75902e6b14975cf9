package bench

import "github.com/cilium/ebpf"

// NewEmpty is newBench.
func NewEmpty(tags int) (*Bench, error) { return newBench(tags) }

// Surround is surround.
func (b *Bench) Surround(p, signals, kept *ebpf.ProgramSpec) error {
	return b.surround(p, signals, kept)
}
