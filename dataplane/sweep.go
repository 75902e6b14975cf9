package dataplane

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// Swept says what a sweep of the flows found.
type Swept struct {
	Kept, Removed uint64
}

const (
	sweptAtOnce = 1024 // lines or sets that hold up packets together: some 20 µs
	sweepTurns  = 5    // in which the whole table is swept: of the largest, some 20 ms of a core each
)

// Sweep removes the flows whose time has run out.
func (p *plane) Sweep() (Swept, error) { return p.sweepAt(monotonic()) }

func (p *plane) sweepAt(now time.Duration) (Swept, error) { return p.sweepLines(now, 0, p.lines) }

// SweepTurn does so in the lines whose turn it is. Kept is what all turns kept, each
// when it was the last time.
func (p *plane) SweepTurn() (Swept, error) {
	swept, err := p.sweepLines(monotonic(), p.turnsLine(p.turn), p.turnsLine(p.turn+1))
	if err != nil {
		return Swept{}, err
	}
	p.kept[p.turn], swept.Kept = swept.Kept, 0
	for _, n := range p.kept {
		swept.Kept += n
	}
	p.turn = (p.turn + 1) % sweepTurns
	return swept, nil
}

// turnsLine is where a turn begins.
func (p *plane) turnsLine(turn int) uint32 {
	return uint32(uint64(p.lines) * uint64(turn) / sweepTurns)
}

// sweepLines sweeps piece by piece: a program that runs by itself, for no packet, holds
// up those of its CPU. The LB's has its own clock.
func (p *plane) sweepLines(now time.Duration, from, to uint32) (sum Swept, err error) {
	for at := from; at < to; at += sweptAtOnce {
		swept, err := p.sweepSome(now, at, min(sweptAtOnce, to-at))
		if err != nil {
			return sum, err
		}
		sum.Kept += swept.Kept
		sum.Removed += swept.Removed
	}
	return sum, nil
}

func (p *plane) sweepSome(now time.Duration, from, count uint32) (Swept, error) {
	in := lbSweep{
		From:     from,
		Count:    count,
		NowNs:    uint64(now),
		IdleNs:   uint64(p.flows.Idle),
		LingerNs: uint64(p.flows.Linger),
	}
	var out lbSweep
	data, err := binary.Append(nil, binary.NativeEndian, in)
	if err != nil {
		return Swept{}, fmt.Errorf("sweep flows: %w", err)
	}
	run := ebpf.RunOptions{Data: data, DataOut: make([]byte, len(data))}
	if _, err := p.sweep.Run(&run); err != nil {
		return Swept{}, fmt.Errorf("sweep flows: %w", err)
	}
	if _, err := binary.Decode(run.DataOut, binary.NativeEndian, &out); err != nil {
		return Swept{}, fmt.Errorf("sweep flows: %w", err)
	}
	return Swept{Kept: out.Kept, Removed: out.Removed}, nil
}
