package bench

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
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

// A run is clean when the CPU was as fast just before and just after it as it
// ever was, but for so much.
const cleanWithin = 1.1

// spins are the times of the same work in three kinds, as a neighbour on the sibling thread or
// in the cache slows some kinds and not others: multiplications that fill the multiplier,
// reads each of which waits for that before, and branches that no processor foresees.
type spins [3]time.Duration

// Rounds of each kind, and how often each is timed: the least counts, as the first is slower
// after other work, and an interrupt is no neighbour. Together they take some 0.5 ms.
const (
	spinTries      = 4
	multiplyRounds = 25_000
	chaseRounds    = 10_000
	branchRounds   = 7_500
)

// chased is a ring of numbers in random order, larger than a first cache and smaller than a
// second.
var chased = sync.OnceValue(func() (ring []uint32) {
	order := rand.New(rand.NewPCG(1, 1)).Perm(1 << 14)
	ring = make([]uint32, len(order))
	for i, at := range order {
		ring[at] = uint32(order[(i+1)%len(order)])
	}
	return ring
})

func spin() (took spins) {
	ring := chased()
	runtime.KeepAlive(slices.Max(ring)) // into the cache
	for range spinTries {
		seed := rand.Uint64() | 1 // a processor learns the branches of a seed
		for kind, work := range []func(){multiply, func() { chase(ring) }, func() { branch(seed) }} {
			began := time.Now()
			work()
			if now := time.Since(began); took[kind] == 0 || now < took[kind] {
				took[kind] = now
			}
		}
	}
	return took
}

// multiply runs six chains that do not depend on each other: together they fill the
// multiplier, so a neighbour shows, as it would not beside one chain.
func multiply() {
	a, b, c, d, e, f := uint64(1), uint64(3), uint64(5), uint64(7), uint64(9), uint64(11)
	for range multiplyRounds {
		a *= 0x9e3779b97f4a7c15
		b *= 0xbf58476d1ce4e5b9
		c *= 0x94d049bb133111eb
		d *= 0xd6e8feb86659fd93
		e *= 0xa0761d6478bd642f
		f *= 0xe7037ed1a0b428db
	}
	runtime.KeepAlive(a ^ b ^ c ^ d ^ e ^ f) // or the compiler leaves them out
}

func chase(ring []uint32) {
	at := uint32(0)
	for range chaseRounds {
		at = ring[at]
	}
	runtime.KeepAlive(at)
}

// branch goes by the bits of Marsaglia's xorshift64, which never end from a number but 0.
func branch(x uint64) {
	n := uint64(0)
	for range branchRounds {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		if x&1 != 0 {
			n = bits.RotateLeft64(n, 5) * 3
		} else {
			n += x >> 3
		}
	}
	runtime.KeepAlive(n)
}

// timing is a run of one row.
type timing struct {
	ns            float64 // a packet, or a connection
	loop          float64 // the bench's own around it, just before
	ratio         float64 // over its floor just before, both without their loops
	before, after spins
	counted       bool // the kernel kept statistics of BPF programs, which takes longer than some of them
}

// timed takes the time of a run.
func timed(measure func() (timing, error)) (timing, error) {
	before := spin()
	r, err := measure()
	r.before, r.after = before, spin()
	return r, err
}

// fastest are the shortest spins of all.
func fastest(rows [][]timing) (best spins) {
	for _, row := range rows {
		for _, r := range row {
			for i := range best {
				if least := min(r.before[i], r.after[i]); best[i] == 0 || least < best[i] {
					best[i] = least
				}
			}
		}
	}
	return best
}

// isClean reports whether all spins around a reading took as long as the best.
func (r *timing) isClean(best spins) bool {
	for i := range best {
		if float64(max(r.before[i], r.after[i])) > cleanWithin*float64(best[i]) {
			return false
		}
	}
	return !r.counted
}

// clean are the clean readings.
func clean(row []timing, best spins) (out []timing) {
	for _, r := range row {
		if r.isClean(best) {
			out = append(out, r)
		}
	}
	return out
}
