package farmrun

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// cpusOf are those on which all threads of a process may run.
func cpusOf(t *testing.T, pid int) (cpus []int) {
	t.Helper()
	var first unix.CPUSet
	found := 0
	for tid := range threads(pid) {
		var set unix.CPUSet
		err := unix.SchedGetaffinity(tid, &set)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if found++; found == 1 {
			first = set
		} else if set != first {
			t.Errorf("threads of process %d may run on %v and on %v", pid, first, set)
		}
	}
	if found == 0 {
		t.Fatalf("process %d has no threads", pid)
	}
	for cpu := range len(first) * 64 {
		if first.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// TestApart: this process on the one half, another on the other, and both
// everywhere again afterwards, also if it went wrong.
func TestApart(t *testing.T) {
	all := cpusOf(t, os.Getpid())
	if len(all) < 2 {
		t.Fatalf("there are CPUs %v: nothing can be apart", all)
	}
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = other.Process.Kill(), other.Wait() }()
	no := errors.New("no")
	for _, want := range []error{nil, no} {
		err := Apart([]int{other.Process.Pid}, func() error {
			ours, theirs := cpusOf(t, os.Getpid()), cpusOf(t, other.Process.Pid)
			if len(ours) != len(all)/2 || !slices.Equal(slices.Concat(ours, theirs), all) {
				t.Errorf("ours are %v and theirs %v, of %v", ours, theirs, all)
			}
			return want
		})
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		for _, pid := range []int{os.Getpid(), other.Process.Pid} {
			if got := cpusOf(t, pid); !slices.Equal(got, all) {
				t.Errorf("afterwards process %d may run on %v, before on %v", pid, got, all)
			}
		}
	}
}
