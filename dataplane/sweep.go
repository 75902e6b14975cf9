package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Swept says what a sweep of the flows found.
type Swept struct {
	Kept, Removed uint64
}

// Of an LB's table, in lines.
const (
	sweptAtOnce = 1024    // hold up packets together: some 20 µs
	sweptInTurn = 1 << 20 // some 20 ms of a core; the largest table takes five turns
)

// Sweep removes the flows whose time has run out.
func (l *LB) Sweep() (Swept, error) { return l.sweepLines(0, l.lines) }

// SweepTurn does so in the lines whose turn it is. Kept is what all turns kept, each
// when it was the last time.
func (l *LB) SweepTurn() (Swept, error) {
	if l.kept == nil {
		l.kept = make([]uint64, max(1, (l.lines+sweptInTurn-1)/sweptInTurn))
	}
	from := uint32(l.turn) * sweptInTurn
	swept, err := l.sweepLines(from, min(from+sweptInTurn, l.lines))
	if err != nil {
		return Swept{}, err
	}
	l.kept[l.turn], swept.Kept = swept.Kept, 0
	for _, n := range l.kept {
		swept.Kept += n
	}
	l.turn = (l.turn + 1) % len(l.kept)
	return swept, nil
}

// sweepLines sweeps piece by piece: a program that runs by itself, for no packet, holds
// up those of its CPU.
func (l *LB) sweepLines(from, to uint32) (sum Swept, err error) {
	for at := from; at < to; at += sweptAtOnce {
		swept, err := l.sweepSome(at, min(sweptAtOnce, to-at))
		if err != nil {
			return sum, err
		}
		sum.Kept += swept.Kept
		sum.Removed += swept.Removed
	}
	return sum, nil
}

func (l *LB) sweepSome(from, count uint32) (Swept, error) {
	in := lbSweep{
		From:     from,
		Count:    count,
		IdleNs:   uint64(l.flows.Idle),
		LingerNs: uint64(l.flows.Linger),
	}
	var out lbSweep
	data, err := binary.Append(nil, binary.NativeEndian, in)
	if err != nil {
		return Swept{}, fmt.Errorf("sweep flows: %w", err)
	}
	run := ebpf.RunOptions{Data: data, DataOut: make([]byte, len(data))}
	if _, err := l.objs.SweepFlows.Run(&run); err != nil {
		return Swept{}, fmt.Errorf("sweep flows: %w", err)
	}
	if _, err := binary.Decode(run.DataOut, binary.NativeEndian, &out); err != nil {
		return Swept{}, fmt.Errorf("sweep flows: %w", err)
	}
	return Swept{Kept: out.Kept, Removed: out.Removed}, nil
}

// sweepTurns: the agent's table is gone through whole, in the first of so many turns. Of
// 131,072 entries that takes 2 ms, in which nobody else has the CPU but packets.
const sweepTurns = 5

// SweepTurn removes the flows whose time has run out, if it is the agent's turn; Kept is
// what it kept then.
func (a *Agent) SweepTurn() (_ Swept, err error) {
	swept := Swept{Kept: a.kept}
	if a.turn == 0 {
		swept, err = a.sweepAt(monotonic())
		a.kept = swept.Kept
	}
	a.turn = (a.turn + 1) % sweepTurns
	return swept, err
}

// sweepAt has the kernel show all entries to the program, which writes nothing: the
// reading ends at once, or is to be begun again after a million of them (EAGAIN).
func (a *Agent) sweepAt(now time.Duration) (Swept, error) {
	s := agentSweep{NowNs: uint64(now), IdleNs: uint64(a.flows.Idle), LingerNs: uint64(a.flows.Linger)}
	if err := a.objs.Sweeping.Set(s); err != nil {
		return Swept{}, fmt.Errorf("sweep flows: %w", err)
	}
	r, err := a.all.Open()
	if err != nil {
		return Swept{}, fmt.Errorf("sweep flows: %w", err)
	}
	defer r.Close()
	for err = unix.EAGAIN; errors.Is(err, unix.EAGAIN); {
		_, err = io.Copy(io.Discard, r)
	}
	if err = errors.Join(err, a.objs.Sweeping.Get(&s)); err != nil {
		return Swept{}, fmt.Errorf("sweep flows: %w", err)
	}
	return Swept{Kept: s.Kept, Removed: s.Removed}, nil
}
