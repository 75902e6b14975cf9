package listeners

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCores: the CPUs of processes are those of their cpuset, within the quotas of their cgroups
// and of those above, in cgroups of both versions.
func TestCores(t *testing.T) {
	const second = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
	const first = "33 32 0:29 / /sys/fs/cgroup/cpu rw shared:5 - cgroup cgroup rw,cpu,cpuacct\n" +
		"34 32 0:30 / /sys/fs/cgroup/unified rw shared:6 - cgroup2 cgroup2 rw\n"
	const container = "30 24 0:26 /kubepods/web /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
	type process struct{ allowed, group string }
	for name, c := range map[string]struct {
		mounts string
		of     []process
		quotas map[string]string
		want   float64
	}{
		"no limits":           {second, []process{{"0-3", "0::/"}}, nil, 4},
		"CPUs that are off":   {second, []process{{"0-127", "0::/web"}}, nil, 4},
		"half a core":         {second, []process{{"0-3", "0::/web"}}, map[string]string{"web/cpu.max": "50000 100000\n"}, 0.5},
		"no quota":            {second, []process{{"0-3", "0::/web"}}, map[string]string{"web/cpu.max": "max 100000\n"}, 4},
		"one CPU":             {second, []process{{"2", "0::/web"}}, map[string]string{"web/cpu.max": "150000 100000\n"}, 1},
		"a quota above":       {second, []process{{"0-3", "0::/a/web"}}, map[string]string{"a/cpu.max": "250000 100000\n", "a/web/cpu.max": "max 100000\n"}, 2.5},
		"two in one cgroup":   {second, []process{{"0", "0::/web"}, {"1", "0::/web"}}, map[string]string{"web/cpu.max": "150000 100000\n"}, 1.5},
		"two under one quota": {second, []process{{"0-3", "0::/a/b"}, {"0-3", "0::/a/c"}}, map[string]string{"a/cpu.max": "100000 100000\n", "a/b/cpu.max": "75000 100000\n"}, 1},
		"two with quotas":     {second, []process{{"0-3", "0::/b"}, {"0-3", "0::/c"}}, map[string]string{"b/cpu.max": "75000 100000\n", "c/cpu.max": "50000 100000\n"}, 1.25},
		"two on one CPU":      {second, []process{{"1", "0::/b"}, {"1", "0::/c"}}, nil, 1},
		"the first version":   {first, []process{{"0-3", "4:memory:/m\n1:cpu,cpuacct:/web\n0::/x"}}, map[string]string{"cpu/web/cpu.cfs_quota_us": "50000\n", "cpu/web/cpu.cfs_period_us": "100000\n"}, 0.5},
		"the first, no quota": {first, []process{{"0-3", "1:cpu,cpuacct:/web"}}, map[string]string{"cpu/web/cpu.cfs_quota_us": "-1\n", "cpu/web/cpu.cfs_period_us": "100000\n"}, 4},
		"a container":         {container, []process{{"0-3", "0::/kubepods/web/a"}}, map[string]string{"a/cpu.max": "50000 100000\n"}, 0.5},
		"nonsense":            {second, []process{{"0-3", "0::/web"}}, map[string]string{"web/cpu.max": "-5 x\n"}, 4},
		"no process":          {second, nil, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			put := func(path, text string) {
				t.Helper()
				at := filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			put("sys/devices/system/cpu/online", "0-3\n")
			put("proc/self/mountinfo", c.mounts)
			var of []Process
			for i, p := range c.of {
				put(fmt.Sprintf("proc/%d/status", 7+i), "Name:\tweb\nCpus_allowed_list:\t"+p.allowed+"\n")
				put(fmt.Sprintf("proc/%d/cgroup", 7+i), p.group+"\n")
				of = append(of, Process{PID: 7 + i})
			}
			for path, text := range c.quotas {
				put("sys/fs/cgroup/"+path, text)
			}
			if got, seen := Cores(root, of); got != c.want || seen != (len(of) > 0) {
				t.Errorf("%v cores (%v), want %v", got, seen, c.want)
			}
		})
	}
}

// TestCoresOfThisHost: a process on one CPU of this host has one core, and another as many as it
// may run on.
func TestCoresOfThisHost(t *testing.T) {
	if os.Getenv("PROFFER_TEST_WAITS") != "" { // the process below
		fmt.Println("here")
		bufio.NewReader(os.Stdin).ReadByte()
		return
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	last := 0
	for cpu := range 1024 {
		if set.IsSet(cpu) {
			last = cpu
		}
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	one := exec.Command("taskset", "-c", fmt.Sprint(last), os.Args[0], "-test.run=^TestCoresOfThisHost$")
	one.Env = append(os.Environ(), "PROFFER_TEST_WAITS=1")
	one.Stdin = theirs
	out, err := one.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		one.Process.Kill()
		theirs.Close()
		one.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if got, seen := Cores("/", []Process{{PID: one.Process.Pid}}); got != 1 || !seen {
		t.Errorf("a process on CPU %d has %v cores (%v)", last, got, seen)
	}
	most := float64(set.Count())
	if got, seen := Cores("/", []Process{{PID: os.Getpid()}}); got <= 0 || got > most || !seen {
		t.Errorf("this process has %v cores (%v), and may run on %v CPUs", got, seen, most)
	}
}

func FuzzCores(f *testing.F) {
	f.Add("0-3,8\n", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/web\n")
	f.Fuzz(func(t *testing.T, list, mounts, group string) {
		for cpu := range cpus(list) {
			if cpu < 0 || cpu > mostCPUs {
				t.Fatalf("CPU %d", cpu)
			}
		}
		if at := hierarchy(mounts).of(group); !filepath.IsAbs(at) || filepath.Clean(at) != at {
			t.Fatalf("the cgroup %q", at)
		}
	})
}
