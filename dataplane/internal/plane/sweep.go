package plane

import (
	"cmp"
	"encoding/binary"
	"errors"
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

// Whole reports whether the whole table has been swept as often as any part of it.
func (p *Plane) Whole() bool { return p.turn == 0 }

// TurnsLine is where a turn begins.
func (p *Plane) TurnsLine(turn int) uint32 {
	return uint32(uint64(p.Lines) * uint64(turn) / SweepTurns)
}

// sweepLines sweeps piece by piece: a long run of the program would delay the packets
// of its CPU. The LB's has its own clock.
func (p *Plane) sweepLines(now time.Duration, from, to uint32) (dataplane.Swept, error) {
	return p.walk(objects.LBSweep{NowNs: uint64(now)}, sweptAtOnce, from, to)
}

// Walk visits all entries and removes none, or those of services that are not offered.
func (p *Plane) Walk(orphans bool) (dataplane.Swept, error) {
	how := objects.LBSweep{} // at time 0 no entry has expired
	if orphans {
		how.Orphans = 1
	}
	return p.walk(how, sweptAtOnce/8, 0, p.Lines)
}

// Recolour sweeps the whole table, and has its entries count by the colour of now.
func (p *Plane) Recolour() (dataplane.Swept, error) {
	return p.walk(objects.LBSweep{Recolour: 1}, sweptAtOnce/8, 0, p.Lines)
}

// WalkBy has another program walk a table of so many lines.
func (p *Plane) WalkBy(sweeper *ebpf.Program, how objects.LBSweep, lines uint32) (dataplane.Swept, error) {
	return walkBy(sweeper, how, sweptAtOnce/8, 0, lines)
}

func (p *Plane) walk(how objects.LBSweep, atOnce, from, to uint32) (sum dataplane.Swept, err error) {
	return walkBy(p.Sweeper, how, atOnce, from, to)
}

func walkBy(sweeper *ebpf.Program, how objects.LBSweep, atOnce, from, to uint32) (sum dataplane.Swept, err error) {
	for at := from; at < to; at += atOnce {
		some := how
		some.From, some.Count = at, min(atOnce, to-at)
		if err := RunRecord(sweeper, &some); err != nil {
			return sum, fmt.Errorf("sweep flows: %w", err)
		}
		sum.Kept += some.Kept
		sum.Removed += some.Removed
		sum.Unmoved += some.Unmoved
		sum.Recoloured += some.Recoloured
	}
	return sum, nil
}

// RunRecord runs an XDP program that has no packet: its frame is a record, which it changes.
func RunRecord[T any](prog *ebpf.Program, record *T) error {
	data, err := binary.Append(nil, binary.NativeEndian, record)
	if err != nil {
		return err
	}
	run := ebpf.RunOptions{Data: data, DataOut: make([]byte, len(data))}
	const done = 1 // XDP_DROP
	if code, err := prog.Run(&run); err != nil || code != done {
		return fmt.Errorf("%s returned %d: %w", prog, code, cmp.Or(err, errAborted))
	}
	_, err = binary.Decode(run.DataOut, binary.NativeEndian, record)
	return err
}

var errAborted = errors.New("the frame is no record of this program")
