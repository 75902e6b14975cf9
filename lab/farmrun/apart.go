package farmrun

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Apart runs f with this process on one half of the CPUs and those others on the
// other half. Where there is one CPU it just runs f.
//
// Left alone, the scheduler puts client and server on one CPU or on two, by habits
// that last for seconds, and a wake on another CPU that sleeps takes longer than the
// ways differ by.
func Apart(others []int, f func() error) (err error) {
	cpus, err := AllowedCPUs()
	if err != nil {
		return err
	}
	half := len(cpus) / 2
	if half == 0 {
		return f()
	}
	place := func(ours, theirs []int) error {
		errs := []error{keepOn(ours, os.Getpid())}
		for _, pid := range others {
			errs = append(errs, keepOn(theirs, pid))
		}
		return errors.Join(errs...)
	}
	defer func() { err = errors.Join(err, place(cpus, cpus)) }()
	if err := place(cpus[:half], cpus[half:]); err != nil {
		return err
	}
	return f()
}

// keepOn keeps all threads of a process on these CPUs, and those that they start.
func keepOn(cpus []int, pid int) error {
	var want unix.CPUSet
	for _, cpu := range cpus {
		want.Set(cpu)
	}
	for range 10 { // each time there may be threads that one which was still elsewhere has started
		moved := false
		for tid := range threads(pid) {
			var is unix.CPUSet
			err := unix.SchedGetaffinity(tid, &is)
			if err == nil && is != want {
				moved = true
				err = unix.SchedSetaffinity(tid, &want)
			}
			if err != nil && !errors.Is(err, unix.ESRCH) { // that thread has ended
				return fmt.Errorf("keep process %d on CPUs %v: %w", pid, cpus, err)
			}
		}
		if !moved {
			return nil
		}
	}
	return fmt.Errorf("keep process %d on CPUs %v: its threads go elsewhere again and again", pid, cpus)
}

// threads are those of a process, none if it has ended.
func threads(pid int) iter.Seq[int] {
	return func(yield func(int) bool) {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return
		}
		for _, task := range tasks {
			if tid, err := strconv.Atoi(task.Name()); err == nil && !yield(tid) {
				return
			}
		}
	}
}

// AllowedCPUs are those that this process may run on.
func AllowedCPUs() ([]int, error) {
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
