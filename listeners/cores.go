package listeners

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Cores is how many CPUs some processes may use at once: those that they may run on, which their
// cpuset narrows, within the quotas of their cgroups and of all cgroups above. root is "/". False: no
// process can be seen.
func Cores(root string, of []Process) (cores float64, seen bool) {
	online := cpus(read(root, "sys/devices/system/cpu/online"))
	groups := hierarchy(read(root, "proc/self/mountinfo"))
	all, in := map[int]bool{}, map[string]map[int]bool{}
	for _, p := range of {
		folder := path.Join("proc", strconv.Itoa(p.PID))
		allowed := cpus(field(read(root, folder, "status"), "Cpus_allowed_list:"))
		group := groups.of(read(root, folder, "cgroup"))
		for cpu := range allowed {
			if !online[cpu] {
				continue
			}
			if in[group] == nil {
				in[group] = map[int]bool{}
			}
			all[cpu], in[group][cpu] = true, true
		}
	}
	within := map[string]float64{} // CPUs for the processes in a cgroup
	for group, cpus := range in {
		within[group] = float64(len(cpus))
	}
	return min(groups.total(root, within), float64(len(all))), len(all) > 0
}

// cgroups is the hierarchy of cgroups that has quotas of CPU time.
type cgroups struct {
	mount, from string // where it is mounted, and from which of its cgroups on
	first       bool   // of version 1
}

// hierarchy finds it in a table of mounts (proc_pid_mountinfo): of version 1 where the controller
// cpu is there.
func hierarchy(mounts string) (found cgroups) {
	for line := range strings.Lines(mounts) {
		place, kind, _ := strings.Cut(line, " - ")
		f, is := strings.Fields(place), strings.Fields(kind)
		if len(f) < 5 || len(is) < 3 {
			continue
		}
		first := is[0] == "cgroup" && slices.Contains(strings.Split(is[2], ","), "cpu")
		if first || is[0] == "cgroup2" && !found.first {
			found = cgroups{mount: f[4], from: f[3], first: first}
		}
	}
	return found
}

// of is the cgroup of a process, by the text of /proc/PID/cgroup.
func (c cgroups) of(text string) string {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (c.first && slices.Contains(strings.Split(f[1], ","), "cpu") || !c.first && f[0] == "0") {
			return path.Clean("/" + strings.TrimPrefix(f[2], strings.TrimSuffix(c.from, "/")))
		}
	}
	return "/"
}

// total adds the CPUs of cgroups, from the deepest to the first, each within its quota.
func (c cgroups) total(root string, within map[string]float64) float64 {
	for {
		deepest, depth := "/", 0
		for group := range within {
			if n := strings.Count(group, "/"); group != "/" && n > depth {
				deepest, depth = group, n
			}
		}
		n := min(within[deepest], c.quota(root, deepest))
		if deepest == "/" {
			return n
		}
		delete(within, deepest)
		within[path.Dir(deepest)] += n
	}
}

// quota is how many CPUs a cgroup may use.
func (c cgroups) quota(root, group string) float64 {
	var quota, period string
	if folder := path.Join(c.mount, group); c.first {
		quota, period = read(root, folder, "cpu.cfs_quota_us"), read(root, folder, "cpu.cfs_period_us")
	} else {
		quota, period, _ = strings.Cut(read(root, folder, "cpu.max"), " ")
	}
	q, noQuota := strconv.ParseFloat(strings.TrimSpace(quota), 64) // "max", and of version 1 "-1": none
	p, noPeriod := strconv.ParseFloat(strings.TrimSpace(period), 64)
	if noQuota != nil || noPeriod != nil || q <= 0 || p <= 0 {
		return math.Inf(1)
	}
	return q / p
}

// mostCPUs bounds the numbers of a list.
const mostCPUs = 1 << 16

// cpus reads a list such as "0-3,8".
func cpus(list string) map[int]bool {
	all := map[int]bool{}
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, several := strings.Cut(part, "-")
		if !several {
			last = first
		}
		from, wrong := strconv.Atoi(first)
		to, wrongTo := strconv.Atoi(last)
		for n := from; wrong == nil && wrongTo == nil && n >= 0 && n <= min(to, mostCPUs); n++ {
			all[n] = true
		}
	}
	return all
}

// field is the rest of the line that begins with a name.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// read is the text of a file; empty: it is not ours to read, or not there.
func read(root string, parts ...string) string {
	b, _ := os.ReadFile(filepath.Join(root, path.Join(parts...)))
	return string(b)
}
