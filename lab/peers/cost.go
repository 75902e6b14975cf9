package peers

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
)

// cost is CPU time.
type cost struct {
	processes time.Duration // of the balancer, in user and kernel mode
	programs  dataplane.Ran // the balancer's eBPF programs
	agents    time.Duration // of the agents' eBPF programs and processes, on the servers
	inAgents  time.Duration // of the agents' eBPF programs alone: part of softirq
	softirq   time.Duration // of the whole machine
	busy      time.Duration // of the whole machine, all that is not idle
}

func (c cost) minus(d cost) cost {
	return cost{
		processes: c.processes - d.processes,
		programs:  dataplane.Ran{Runs: c.programs.Runs - d.programs.Runs, Time: c.programs.Time - d.programs.Time},
		agents:    c.agents - d.agents,
		inAgents:  c.inAgents - d.inAgents,
		softirq:   c.softirq - d.softirq,
		busy:      c.busy - d.busy,
	}
}

func (c cost) plus(d cost) cost { return c.minus(cost{}.minus(d)) }

// own is the balancer's own time.
func (c cost) own() time.Duration { return c.processes + c.programs.Time }

// tick is the unit of the times in /proc/stat: USER_HZ is 100 wherever Linux
// shows it.
const tick = 10 * time.Millisecond

// spent is the time of a balancer and the machine so far.
func (b *balancer) spent() (c cost, err error) {
	if c.processes, err = processTimes(b.processes); err != nil {
		return c, err
	}
	if c.programs, err = programs(b.loaders); err != nil {
		return c, err
	}
	ran, err := programs(b.agents)
	if err != nil {
		return c, err
	}
	if c.agents, err = processTimes(b.agents); err != nil {
		return c, err
	}
	c.agents += ran.Time
	c.inAgents = ran.Time
	machine, err := farmrun.ReadCPU("/proc/stat")
	c.softirq, c.busy = time.Duration(machine.Softirq)*tick, time.Duration(machine.Busy)*tick
	return c, err
}

// programs is the run time of the eBPF programs that these processes have loaded.
func programs(loaders []*testbed.Process) (sum dataplane.Ran, err error) {
	for _, p := range loaders {
		ran, err := dataplane.RunTime(p.Pid())
		if err != nil {
			return sum, err
		}
		sum.Runs += ran.Runs
		sum.Time += ran.Time
	}
	return sum, nil
}

func processTimes(all []*testbed.Process) (sum time.Duration, err error) {
	for _, p := range all {
		took, err := processTime(p.Pid())
		if err != nil {
			return sum, err
		}
		sum += took
	}
	return sum, nil
}

// processTime is utime and stime of /proc/PID/stat, all threads together, from the
// clock that the kernel has for it (clock_getcpuclockid(3)): that one is exact,
// the file counts in hundredths of a second.
func processTime(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED of a process, linux/posix-timers_types.h
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &at); err != nil {
		return 0, fmt.Errorf("read CPU time of process %d: %w", pid, err)
	}
	return time.Duration(at.Nano()), nil
}
