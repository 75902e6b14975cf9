package plane

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestMemoryLeft: the tightest of the machine and of the control groups around the
// process bounds the memory of a table, by its name.
func TestMemoryLeft(t *testing.T) {
	const mib = 1 << 20
	machine := map[string]string{"proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 1048576 kB\nMemFree: 7 kB\n"}
	for _, c := range []struct {
		label string
		files map[string]string
		want  room
	}{
		{"a machine without control groups", nil, room{1024 * mib, "this machine"}},
		{"groups of the first version", map[string]string{
			"proc/self/cgroup": "4:memory:/a\n1:cpu:/a\n", "sys/fs/cgroup/a/memory.max": "1",
		}, room{1024 * mib, "this machine"}},
		{"no limit", map[string]string{
			"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.current": "0\n",
		}, room{1024 * mib, "this machine"}},
		{"a limit above the machine's memory", map[string]string{
			"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "2147483648\n", "sys/fs/cgroup/a/memory.current": "0\n",
		}, room{1024 * mib, "this machine"}},
		{"its own", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "536870912\n", "sys/fs/cgroup/a/b/memory.current": "134217728\n",
		}, room{384 * mib, "memory.max of cgroup /a/b"}},
		{"the one around it", map[string]string{
			"proc/self/cgroup": "1:cpu:/\n0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "536870912\n", "sys/fs/cgroup/a/b/memory.current": "0\n",
			"sys/fs/cgroup/a/memory.max": "536870912\n", "sys/fs/cgroup/a/memory.current": "268435456\n",
		}, room{256 * mib, "memory.max of cgroup /a"}},
		{"a container's, which sees itself as the root", map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n", "sys/fs/cgroup/memory.current": "0\n",
		}, room{512 * mib, "memory.max of cgroup /"}},
		{"above its own root", map[string]string{
			"proc/self/cgroup": "0::/../b\n", "sys/fs/cgroup/memory.max": "536870912\n", "sys/fs/cgroup/memory.current": "0\n",
		}, room{512 * mib, "memory.max of cgroup /"}},
		{"full of file pages", map[string]string{
			"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "536870912\n", "sys/fs/cgroup/a/memory.current": "536870912\n",
			"sys/fs/cgroup/a/memory.stat": "anon 1\nfile 419430400\ninactive_file 268435456\nactive_file 134217728\n",
		}, room{384 * mib, "memory.max of cgroup /a"}},
		{"over its limit", map[string]string{
			"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "1048576\n", "sys/fs/cgroup/a/memory.current": "2097152\n",
		}, room{0, "memory.max of cgroup /a"}},
	} {
		root := fstest.MapFS{}
		for _, files := range []map[string]string{machine, c.files} {
			for path, text := range files {
				root[path] = &fstest.MapFile{Data: []byte(text)}
			}
		}
		if got := MemoryLeft(root); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.label, got, c.want)
		}
	}
	if err := MemoryLeft(fstest.MapFS{}).Fits(64, 1<<40); err != nil {
		t.Errorf("nothing is known: %v", err)
	}
	if got := MemoryLeft(fstest.MapFS{"proc/meminfo": {Data: []byte(machine["proc/meminfo"])}}); got.Fits(9, 1024*mib) != nil || got.Fits(9, 1024*mib+1) == nil {
		t.Errorf("a table that just fits: %+v", got)
	}
	err := room{256 * mib, "memory.max of cgroup /a"}.Fits(16777216, 320*mib)
	if err == nil || !strings.HasPrefix(err.Error(), "a table of 16777216 flows takes 320 MiB and memory.max of cgroup /a leaves 256 MiB: lower") {
		t.Error(err)
	}
}
