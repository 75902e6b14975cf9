package dataplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// CountRunTime makes the kernel add up how long each eBPF program of the machine
// runs, until stop. It costs each run two reads of the clock, about one of them
// is inside the sum.
func CountRunTime() (stop func() error, err error) {
	counting, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, fmt.Errorf("count the run time of eBPF programs (BPF_ENABLE_STATS; needs CAP_SYS_ADMIN on the machine itself, not only in a container): %w", err)
	}
	return counting.Close, nil
}

// Ran is the number and the duration of eBPF programs' runs while they were counted.
type Ran struct {
	Runs uint64
	Time time.Duration
}

// RunTime adds up the run times of all programs that a process holds open, whichever
// process loaded them: /proc/PID/fdinfo (proc(5)) has the run time of each program.
func RunTime(pid int) (sum Ran, err error) {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return sum, err
	}
	programs := map[uint64]Ran{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) { // closed meanwhile
			continue
		}
		if err != nil {
			return sum, fmt.Errorf("read the run time of eBPF programs: %w", err)
		}
		if id, ran, ok := programOf(string(text)); ok {
			programs[id] = ran
		}
	}
	if len(programs) == 0 {
		return sum, fmt.Errorf("process %d holds no eBPF program open: is it a running daemon?", pid)
	}
	for _, ran := range programs {
		sum.Runs += ran.Runs
		sum.Time += ran.Time
	}
	return sum, nil
}

// programOf reads fdinfo, if it is of a program. A link's has
// prog_id too, but not how long it ran.
func programOf(text string) (id uint64, ran Ran, ok bool) {
	values := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64); err == nil {
			values[name] = n
		}
	}
	nanoseconds, ok := values["run_time_ns"]
	return values["prog_id"], Ran{Runs: values["run_cnt"], Time: time.Duration(nanoseconds)}, ok
}
