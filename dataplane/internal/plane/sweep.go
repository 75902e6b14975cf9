package plane

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"proffer/dataplane"
	"proffer/dataplane/objects"
)

const (
	sweptAtOnce = 1024 // lines or sets that hold up packets together: some 20 µs
	SweepTurns  = 5    // in which the whole table is swept: of the largest, some 20 ms of a core each
)

// Sweep removes the expired flows.
func (p *Plane) Sweep() (dataplane.Swept, error) { return p.SweepAt(Monotonic()) }

func (p *Plane) SweepAt(now time.Duration) (dataplane.Swept, error) {
	return p.sweepLines(now, 0, p.Lines)
}

// SweepTurn removes the expired flows in the lines of its turn. Kept is the sum over
// all turns of the flows that each kept at its last sweep.
func (p *Plane) SweepTurn() (dataplane.Swept, error) {
	swept, err := p.sweepLines(Monotonic(), p.TurnsLine(p.turn), p.TurnsLine(p.turn+1))
	if err != nil {
		return dataplane.Swept{}, err
	}
	p.kept[p.turn], swept.Kept = swept.Kept, 0
	for _, n := range p.kept {
		swept.Kept += n
	}
	p.turn = (p.turn + 1) % SweepTurns
	return swept, nil
}

// TurnsLine is where a turn begins.
func (p *Plane) TurnsLine(turn int) uint32 {
	return uint32(uint64(p.Lines) * uint64(turn) / SweepTurns)
}

// sweepLines sweeps piece by piece: a long run of the program would delay the packets
// of its CPU. The LB's has its own clock.
func (p *Plane) sweepLines(now time.Duration, from, to uint32) (sum dataplane.Swept, err error) {
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

func (p *Plane) sweepSome(now time.Duration, from, count uint32) (dataplane.Swept, error) {
	in := objects.LBSweep{
		From:     from,
		Count:    count,
		NowNs:    uint64(now),
		IdleNs:   uint64(p.FlowTable.Idle),
		LingerNs: uint64(p.FlowTable.Linger),
	}
	var out objects.LBSweep
	data, err := binary.Append(nil, binary.NativeEndian, in)
	if err != nil {
		return dataplane.Swept{}, fmt.Errorf("sweep flows: %w", err)
	}
	run := ebpf.RunOptions{Data: data, DataOut: make([]byte, len(data))}
	if _, err := p.Sweeper.Run(&run); err != nil {
		return dataplane.Swept{}, fmt.Errorf("sweep flows: %w", err)
	}
	if _, err := binary.Decode(run.DataOut, binary.NativeEndian, &out); err != nil {
		return dataplane.Swept{}, fmt.Errorf("sweep flows: %w", err)
	}
	return dataplane.Swept{Kept: out.Kept, Removed: out.Removed}, nil
}
