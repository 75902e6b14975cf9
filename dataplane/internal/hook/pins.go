package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The pins beside those of maps and programs.
const (
	XDPPin     = "link"    // XDP's link; of a plane on several links the first, and link-N for the device N
	EgressPin  = "egress"  // the tcx link on the way out
	IngressPin = "ingress" // … on the way in
	QdiscMark  = "clsact"  // a directory: the qdisc was made for us
	SocketsPin = "sockets" // the link that counts sockets
)

// Dir is the directory below base for the pins of a link. Nodes of one name in several network
// namespaces share the file system, and a link keeps its number if its name changes.
func Dir(base string, dev *net.Interface) (string, error) {
	ns, err := namespace()
	return filepath.Join(base, fmt.Sprintf("%d-%d", ns, dev.Index)), err
}

// deviceOf is the link of a directory of pins of this network namespace; nil: it is gone.
func deviceOf(dir string) *net.Interface {
	_, number, _ := strings.Cut(filepath.Base(dir), "-")
	index, err := strconv.Atoi(number)
	if err != nil {
		return nil
	}
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return nil
	}
	return &net.Interface{Index: index, Name: l.Attrs().Name}
}

// Forsaken lists the directories of pins below base for links of this network namespace that are gone.
func Forsaken(base string) (dirs []string) {
	ns, err := namespace()
	if err != nil {
		return nil
	}
	all, _ := filepath.Glob(filepath.Join(base, fmt.Sprintf("%d-[0-9]*", ns)))
	return slices.DeleteFunc(all, func(dir string) bool { return deviceOf(dir) != nil })
}

// namespace is the number of this network namespace.
func namespace() (uint64, error) {
	var ns unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &ns); err != nil {
		return 0, fmt.Errorf("find the network namespace: %w", err)
	}
	return ns.Ino, nil
}

// Pinned lists the directories of pins that daemons made for links of this network namespace,
// in all BPF file systems.
func Pinned() (dirs []string, err error) {
	ns, err := namespace()
	if err != nil {
		return nil, err
	}
	mounts, err := bpfMounts()
	if err != nil {
		return nil, err
	}
	prefix := fmt.Sprintf("%d-", ns)
	for _, mount := range mounts {
		err := filepath.WalkDir(mount, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrPermission) {
				return err
			}
			if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), prefix) && isState(path) {
				dirs = append(dirs, path)
			}
			return nil // it went meanwhile
		})
		if err != nil {
			return nil, fmt.Errorf("search %s: %w", mount, err)
		}
	}
	return dirs, nil
}

// isState reports whether a directory has the mark of a layout of ours, or our link.
func isState(dir string) bool {
	layouts, err := filepath.Glob(filepath.Join(dir, "layout-*"))
	return err == nil && len(layouts) > 0 || len(XDPPins(dir)) > 0
}

// XDPPins lists the pins of XDP's links in a directory.
func XDPPins(dir string) []string {
	more, _ := filepath.Glob(filepath.Join(dir, XDPPin+"-[0-9]*"))
	if first := filepath.Join(dir, XDPPin); exists(first) {
		more = append(more, first)
	}
	return more
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// bpfMounts lists the BPF file systems, each once.
func bpfMounts() (points []string, err error) {
	text, err := os.ReadFile("/proc/self/mountinfo") // proc(5)
	if err != nil {
		return nil, fmt.Errorf("find the BPF file systems: %w", err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if !ok || !strings.HasPrefix(after, "bpf ") || len(fields) < 5 || seen[fields[2]] {
			continue
		}
		seen[fields[2]] = true // the device
		points = append(points, unescaped.Replace(fields[4]))
	}
	return points, nil
}

// unescaped undoes mountinfo's way to write a path.
var unescaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// isOursOn reports whether this program runs by a link that a daemon pinned.
func isOursOn(id ebpf.ProgramID) bool {
	dirs, err := Pinned()
	if err != nil {
		return false
	}
	for _, dir := range dirs {
		if slices.ContainsFunc(XDPPins(dir), func(pin string) bool { return runs(pin, id) }) {
			return true
		}
	}
	return false
}

// runs reports whether a pinned link has this program.
func runs(pin string, id ebpf.ProgramID) bool {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return false
	}
	defer l.Close()
	info, err := l.Info()
	return err == nil && info.Program == id
}
