package plane

import (
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// room is the memory that a new map may take, and the limit that bounds it.
type room struct {
	bytes uint64
	of    string
}

// MemoryLeft returns the tightest room of this process, read from the machine's root
// directory: the memory that the kernel could give without swapping, and that the
// process's control group (v2) and those around it may still take. Maps are charged to
// them. A limit that cannot be read is no bound.
func MemoryLeft(root fs.FS) room {
	least := room{math.MaxUint64, ""}
	if left, ok := numberAfter(root, "proc/meminfo", "MemAvailable:"); ok {
		least = room{left << 10, "this machine"}
	}
	for group := ownGroup(root); ; group = path.Dir(group) {
		if left, ok := groupLeft(root, path.Join("sys/fs/cgroup", group)); ok && left < least.bytes {
			least = room{left, "memory.max of cgroup " + group}
		}
		if group == "/" {
			return least
		}
	}
}

// ownGroup is the path of this process's control group.
func ownGroup(root fs.FS) string {
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		if group, ok := strings.CutPrefix(line, "0::"); ok {
			return path.Join("/", strings.TrimSuffix(group, "\n"))
		}
	}
	return "/"
}

// groupLeft is the memory that a control group may still take. The pages of files that it has
// read or written are counted, but give way.
func groupLeft(root fs.FS, dir string) (left uint64, bounded bool) {
	most, bounded := numberAfter(root, path.Join(dir, "memory.max"), "")
	used, ok := numberAfter(root, path.Join(dir, "memory.current"), "")
	if !bounded || !ok {
		return 0, false
	}
	for _, cache := range []string{"active_file", "inactive_file"} {
		n, _ := numberAfter(root, path.Join(dir, "memory.stat"), cache)
		used -= min(n, used)
	}
	return most - min(used, most), true
}

// numberAfter reads the number that follows a word, or the file's first; "max" is none.
func numberAfter(root fs.FS, file, word string) (n uint64, ok bool) {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return 0, false
	}
	words := strings.Fields(string(text))
	at := 0
	if word != "" {
		at = slices.Index(words, word) + 1
	}
	if at >= len(words) || word != "" && at == 0 {
		return 0, false
	}
	n, err = strconv.ParseUint(words[at], 10, 64)
	return n, err == nil
}

// Fits returns an error for a flow table larger than the memory left.
func (r room) Fits(flows int, bytes uint64) error {
	if bytes <= r.bytes {
		return nil
	}
	return fmt.Errorf("a table of %d flows takes %d MiB and %s leaves %d MiB: lower flow_table.entries",
		flows, bytes>>20, r.of, r.bytes>>20)
}
