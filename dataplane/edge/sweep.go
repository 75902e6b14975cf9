package edge

import (
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/topo"
)

const (
	sweptAtOnce = 4096
	seenShift   = 28 // EDGE_SEEN_SHIFT of bpf/edge/flows.h
)

// SweepTurn removes the flows that are idle, each with its partner: the flow before and the flow after a
// change die together. User space looks for them; a program on each CPU removes its share, by the
// digest, after another look at the entry.
func (l *LB) SweepTurn() (swept dataplane.Swept, err error) {
	now, err := l.clock()
	if err != nil {
		return swept, err
	}
	swept.Kept, err = l.idleFlows(now, func(idle []uint64) error {
		removed, err := l.expire(idle)
		swept.Removed += removed
		return err
	})
	return swept, err
}

// expire removes flows on all CPUs at once, and returns how many entries went.
func (l *LB) expire(idle []uint64) (removed uint64, err error) {
	cpus := uint64(runtime.NumCPU())
	shares := make([][]uint64, cpus)
	for _, hash := range idle {
		shares[hash%cpus] = append(shares[hash%cpus], hash)
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for cpu, share := range shares {
		if len(share) == 0 {
			continue
		}
		wait.Go(func() {
			n, failed := l.expireOn(cpu, share)
			mu.Lock()
			defer mu.Unlock()
			removed += n
			if failed != nil {
				err = failed
			}
		})
	}
	wait.Wait()
	return removed, err
}

// expireOn runs on one CPU, whose thread ends with it.
func (l *LB) expireOn(cpu int, share []uint64) (removed uint64, err error) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	_ = unix.SchedSetaffinity(0, &set) // a CPU that this process may not use: any CPU will do
	for len(share) > 0 {
		var some objects.EdgeEdgeExpiry
		some.Count = uint32(copy(some.Hash[:], share))
		share = share[some.Count:]
		if err := plane.RunRecord(l.objs.SweepEdge, &some); err != nil {
			return removed, fmt.Errorf("sweep flows: %w", err)
		}
		removed += uint64(some.Removed)
	}
	return removed, nil
}

var _ = [1]int{}[topo.MaxExpiring-len(objects.EdgeEdgeExpiry{}.Hash)] // the layout is the program's
