package experiment

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	inkernel "proffer/dataplane/bench"
)

// onCPU runs f on a thread of its own that stays on one CPU, and ends with f.
func onCPU(cpu int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var only unix.CPUSet
		only.Set(cpu)
		if err := unix.SchedSetaffinity(0, &only); err != nil {
			done <- fmt.Errorf("stay on CPU %d: %w (which CPUs there are: /sys/devices/system/cpu/online, and `taskset -p $$`)", cpu, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// allowedCPUs are those that this process may run on.
func allowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("ask which CPUs this process may use: %w", err)
	}
	var cpus []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// A run is clean when the CPU was as fast just before and just after it as it
// ever was, but for so much.
const cleanWithin = 1.1

// spinRounds take about a millisecond.
const spinRounds = 300_000

// spin times six multiply chains that do not depend on each other: together they
// fill the multiplier, so a neighbour on the sibling thread shows, as it would not
// beside one chain.
func spin() time.Duration {
	a, b, c, d, e, f := uint64(1), uint64(3), uint64(5), uint64(7), uint64(9), uint64(11)
	began := time.Now()
	for range spinRounds {
		a *= 0x9e3779b97f4a7c15
		b *= 0xbf58476d1ce4e5b9
		c *= 0x94d049bb133111eb
		d *= 0xd6e8feb86659fd93
		e *= 0xa0761d6478bd642f
		f *= 0xe7037ed1a0b428db
	}
	took := time.Since(began)
	runtime.KeepAlive(a ^ b ^ c ^ d ^ e ^ f) // or the compiler leaves them out
	return took
}

// timing is one run of one row.
type timing struct {
	ns            float64 // a packet
	before, after time.Duration
	counted       bool // the kernel kept statistics of BPF programs, which takes longer than some of them
}

// timed takes the time of a run.
func timed(measure func() (inkernel.Run, error)) (r timing, err error) {
	r.before = spin()
	run, err := measure()
	r.after = spin()
	r.ns, r.counted = float64(run.Took), run.Statistics
	return r, err
}

// fastest is the shortest spin of all.
func fastest(rows [][]timing) time.Duration {
	best := time.Duration(0)
	for _, row := range rows {
		for _, r := range row {
			if least := min(r.before, r.after); best == 0 || least < best {
				best = least
			}
		}
	}
	return best
}

// clean sorts the times of the clean readings.
func clean(row []timing, best time.Duration) (ns []float64) {
	for _, r := range row {
		if !r.counted && float64(max(r.before, r.after)) <= cleanWithin*float64(best) {
			ns = append(ns, r.ns)
		}
	}
	slices.Sort(ns)
	return ns
}
