package plane

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Pins is a directory of a BPF filesystem with the names of objects that outlive
// the daemon: the link that keeps the program attached, and the maps of
// state learnt from packets. Programs and configuration are new with every daemon. The
// zero value pins nothing.
type Pins struct {
	dir  string
	link link.Link    // left attached by an earlier daemon, or nil
	read bool         // its maps have the layout of this daemon's
	lock net.Listener // held while the daemon lives; the kernel lets it go with it
}

// Open finds the objects that an earlier daemon left behind for the link dev. A reason
// for not pinning is no error: a data plane works without pins. A running daemon on the
// link is an error: its objects are in use.
func Open(dir string, dev *net.Interface) (p Pins, reason string, err error) {
	if dir == "" {
		return Pins{}, "no directory is configured", nil
	}
	if !onBPFFS(filepath.Dir(dir)) {
		return Pins{}, fmt.Sprintf("%s is not in a BPF filesystem: `mount -t bpf bpf /sys/fs/bpf`, or set node.pin", dir), nil
	}
	var ns unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &ns); err != nil {
		return Pins{}, fmt.Sprintf("find the network namespace: %v", err), nil
	}
	// Nodes of one name in several namespaces share the file system.
	dir = filepath.Join(dir, fmt.Sprintf("%d-%s", ns.Ino, dev.Name))
	p.dir = dir
	if p.lock, err = net.Listen("unix", "@proffer"+dir); err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			return Pins{}, "", fmt.Errorf("%s already has an XDP program of a running daemon: stop that daemon first", dev.Name)
		}
		return Pins{}, "", fmt.Errorf("lock %s: %w", dir, err)
	}
	p.link = leftAttached(filepath.Join(dir, linkPin), dev.Index)
	if p.link == nil { // then nothing of it sees packets
		os.RemoveAll(dir)
	}
	if _, err := os.Stat(p.Path(Layout)); err == nil {
		p.read = true
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		p.lock.Close()
		return Pins{}, err.Error(), nil
	}
	return p, "", nil
}

const linkPin = "link"

// layout is an empty directory beside the maps, named after the meaning of the bits of
// their entries, which the shape of a map does not show. A change of the layout
// increments the number.
const (
	Layout  = "layout-3"
	layouts = "layout-*"
)

// onBPFFS reports whether the nearest existing directory is one of bpffs.
func onBPFFS(dir string) bool {
	var fs unix.Statfs_t
	for {
		err := unix.Statfs(dir, &fs)
		if err == nil {
			return fs.Type == unix.BPF_FS_MAGIC
		}
		if !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			return false
		}
		dir = filepath.Dir(dir)
	}
}

// leftAttached returns the pinned link if it runs on dev now: a link of
// the same number may belong to another network namespace.
func leftAttached(path string, dev int) link.Link {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return nil
	}
	info, err := l.Info()
	device, errDevice := netlink.LinkByIndex(dev)
	if err == nil && errDevice == nil && info.XDP() != nil && int(info.XDP().Ifindex) == dev {
		if xdp := device.Attrs().Xdp; xdp != nil && xdp.Attached && xdp.ProgId == uint32(info.Program) {
			return l
		}
	}
	l.Close()
	return nil
}

// Adopt returns the pinned maps of these names that have the shape of spec, if they are
// of this layout; the other maps start empty.
func (p *Pins) Adopt(spec *ebpf.CollectionSpec, names ...string) map[string]*ebpf.Map {
	maps := map[string]*ebpf.Map{}
	for _, name := range names {
		if p.link == nil || !p.read {
			break
		}
		m, err := ebpf.LoadPinnedMap(p.Path(name), nil)
		if err != nil {
			continue
		}
		if spec.Maps[name].Compatible(m) != nil {
			m.Close()
			continue
		}
		maps[name] = m
	}
	return maps
}

func (p *Pins) Path(name string) string { return filepath.Join(p.dir, name) }

// Keep pins maps under their names.
func (p *Pins) Keep(maps map[string]*ebpf.Map) error {
	if p.dir == "" {
		return nil
	}
	others, err := filepath.Glob(p.Path(layouts))
	if err != nil {
		return fmt.Errorf("find pinned maps: %w", err)
	}
	for _, other := range others {
		os.Remove(other)
	}
	for name, m := range maps {
		os.Remove(p.Path(name)) // one of another shape, or layout
		if err := m.Pin(p.Path(name)); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	if err := os.Mkdir(p.Path(Layout), 0o700); err != nil {
		return fmt.Errorf("pin the layout of the maps: %w", err)
	}
	return nil
}

// keepLink pins the attached link.
func (p *Pins) keepLink(l link.Link) error {
	if p.dir == "" {
		return nil
	}
	if err := l.Pin(p.Path(linkPin)); err != nil {
		return fmt.Errorf("pin the link: %w", err)
	}
	return nil
}

// Unlock lets the next daemon in.
func (p *Pins) Unlock() error {
	if p.lock == nil {
		return nil
	}
	return p.lock.Close()
}

// remove unpins all objects: those that no process holds open end.
func (p *Pins) remove() error {
	if p.dir == "" {
		return nil
	}
	err := os.RemoveAll(p.dir)
	for dir := filepath.Dir(p.dir); os.Remove(dir) == nil; dir = filepath.Dir(dir) {
		continue // parents that are empty now
	}
	return err
}
