package dataplane

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
)

// Floors of bpf/bench/floors.h: what a part of a load balancer costs, alone.
const (
	FloorLoop          = benchProgLoop
	FloorLoopOut       = benchProgLoopOut
	FloorAdjustHead    = benchProgAdjustHead
	FloorEncapsulate   = benchProgEncapsulate
	FloorLine          = benchProgRandomLine
	FloorHash          = benchProgHash
	FloorLRUHash       = benchProgLruHash
	FloorHashInsert    = benchProgHashInsert
	FloorLRUHashInsert = benchProgLruHashInsert
	FloorClock         = benchProgClock
)

// BenchFloors are some of the floors, with tables in common.
type BenchFloors struct {
	*Bench
	all *ebpf.Collection
}

// NewBenchFloors loads these floors, whose tables have room for so many flows and
// whose array has so many lines.
func NewBenchFloors(flows, lines int, floors ...string) (*BenchFloors, error) {
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
		if err := b.surround(p); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	spec.Maps[benchMapCacheLines].MaxEntries = uint32(lines)
	spec.Maps[benchMapHashed].MaxEntries = uint32(flows)
	spec.Maps[benchMapRecent].MaxEntries = uint32(flows)
	if err := spec.Variables["line_count"].Set(uint32(lines)); err != nil {
		return nil, errors.Join(fmt.Errorf("set the number of lines: %w", err), b.Close())
	}
	all, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, errors.Join(loadError("bench", err), b.Close())
	}
	return &BenchFloors{b, all}, nil
}

// Run is Bench.Run with one of the floors.
func (b *BenchFloors) Run(floor string, cpu, packets int, d *Drill) (BenchRun, error) {
	with := *b.Bench
	with.prog = b.all.Programs[floor]
	return with.Run(cpu, packets, d)
}

// Close frees programs and tables.
func (b *BenchFloors) Close() error {
	b.all.Close()
	return b.Bench.Close()
}
