package bench

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
)

// Floors of bpf/bench/floors.h: the cost of a part of a load balancer, alone.
const (
	FloorLoop          = objects.BenchProgLoop
	FloorLoopOut       = objects.BenchProgLoopOut
	FloorAdjustHead    = objects.BenchProgAdjustHead
	FloorEncapsulate   = objects.BenchProgEncapsulate
	FloorLine          = objects.BenchProgRandomLine
	FloorHash          = objects.BenchProgHash
	FloorLRUHash       = objects.BenchProgLruHash
	FloorHashInsert    = objects.BenchProgHashInsert
	FloorLRUHashInsert = objects.BenchProgLruHashInsert
	FloorClock         = objects.BenchProgClock
	FloorCalls         = objects.BenchProgCalls
	FloorHelpers       = objects.BenchProgHelpers
)

// Floors are some of the floors, with tables in common.
type Floors struct {
	*Bench
	all *ebpf.Collection
}

// NewFloors loads these floors, with tables for so many flows and an
// array of so many lines.
func NewFloors(flows, lines int, floors ...string) (*Floors, error) {
	b, err := newBench(0)
	if err != nil {
		return nil, err
	}
	spec := b.spec.Copy()
	for name, p := range spec.Programs {
		if !slices.Contains(floors, name) {
			delete(spec.Programs, name)
			continue
		}
		if err := b.surround(p, p, p); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	spec.Maps[objects.BenchMapCacheLines].MaxEntries = uint32(lines)
	spec.Maps[objects.BenchMapHashed].MaxEntries = uint32(flows)
	spec.Maps[objects.BenchMapRecent].MaxEntries = uint32(flows)
	if err := spec.Variables["line_count"].Set(uint32(lines)); err != nil {
		return nil, errors.Join(fmt.Errorf("set the number of lines: %w", err), b.Close())
	}
	all, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, errors.Join(plane.LoadError("bench", err), b.Close())
	}
	return &Floors{b, all}, nil
}

// Run is Bench.Run with one of the floors.
func (b *Floors) Run(floor string, cpu, packets int, d *Drill) (Run, error) {
	with := *b.Bench
	with.prog = b.all.Programs[floor]
	return with.Run(cpu, packets, d)
}

// Close frees programs and tables.
func (b *Floors) Close() error {
	b.all.Close()
	return b.Bench.Close()
}
