package plane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/dataplane/internal/hook"
	"proffer/dataplane/objects"
)

// Pins is a directory of a BPF filesystem with the names of objects that outlive
// the daemon: the link that keeps the program attached, and the maps of
// state learnt from packets. Programs and configuration are new with every daemon. The
// zero value pins nothing.
type Pins struct {
	dir  string
	made string    // the layout of its maps, by this daemon
	link link.Link // left attached by an earlier daemon, or nil
	read bool      // its maps have the layout of this daemon's
	lock *os.File  // held while the daemon lives; the kernel lets it go with it
	// Forgotten are the flows of an earlier daemon that cannot be adopted, with the reason.
	Forgotten string

	next []string // names of pins that wait for the programs that use them
}

// Open finds the objects that an earlier daemon left behind for the link dev, whose maps are of a
// layout. A reason for not pinning is no error: a data plane works without pins. A running daemon on
// the link is an error: its objects are in use.
func Open(dir string, dev *net.Interface, layout string) (p Pins, reason string, err error) {
	if dir == "" {
		return Pins{}, "no directory is configured", nil
	}
	if !onBPFFS(filepath.Dir(dir)) {
		return Pins{}, fmt.Sprintf("%s is not in a BPF filesystem: `mount -t bpf bpf /sys/fs/bpf`, or set node.pin", dir), nil
	}
	dir, err = hook.Dir(dir, dev)
	if err != nil {
		return Pins{}, err.Error(), nil
	}
	p.dir, p.made = dir, layout
	if p.lock, err = lockDir(dir); err != nil {
		if errors.Is(err, errLocked) {
			return Pins{}, "", fmt.Errorf("%s already has an XDP program of a running daemon: stop that daemon first", dev.Name)
		}
		return Pins{}, err.Error(), nil
	}
	p.link = leftAttached(filepath.Join(dir, hook.XDPPin), dev.Index)
	if p.link == nil { // then nothing of it sees packets
		if err := p.empty(); err != nil {
			return Pins{}, "", errors.Join(err, p.lock.Close())
		}
	}
	if _, err := os.Stat(p.Path(layout)); err == nil {
		p.read = true
	}
	return p, "", nil
}

const (
	programPin = "program" // of XDP, to return to
	nextSuffix = "-next"   // of a pin before Commit
)

// empty removes all pins and leaves the directory, which is the lock.
func (p *Pins) empty() error {
	entries, err := os.ReadDir(p.dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(p.Path(e.Name())))
	}
	if err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	return nil
}

// layout is an empty directory beside the maps, named after the meaning of the bits of
// their entries, which the shape of a map does not show. A change of the layout
// increments the number.
const (
	Layout     = "layout-8"
	EdgeLayout = "layout-edge-1" // struct edge_flow of bpf/edge/types.h
	NFLayout   = "layout-nf-1"   // there, too: kept_flow, nat_binding, firewall_state and their keys
	layouts    = "layout-*"
)

// onBPFFS reports whether the nearest existing directory is of a bpffs.
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
		if p.link == nil {
			break
		}
		if !p.read {
			p.forgetLayout(name)
			continue
		}
		m, err := ebpf.LoadPinnedMap(p.Path(name), nil)
		if err != nil {
			continue
		}
		if spec.Maps[name].Compatible(m) != nil {
			p.forget(name, m, fmt.Sprintf("the table has %d elements now, it had %d", spec.Maps[name].MaxEntries, m.MaxEntries()))
			m.Close()
			continue
		}
		maps[name] = m
	}
	return maps
}

// forgetLayout notes the entries of a map of another layout.
func (p *Pins) forgetLayout(name string) {
	m, err := ebpf.LoadPinnedMap(p.Path(name), nil)
	if err != nil {
		return
	}
	defer m.Close()
	was := "a layout without a number"
	if others, err := filepath.Glob(p.Path(layouts)); err == nil && len(others) > 0 {
		was = filepath.Base(others[0])
	}
	p.forget(name, m, fmt.Sprintf("the entries are of %s, this version reads %s", was, p.made))
}

// forget notes the entries of a table of flows that is not adopted.
func (p *Pins) forget(name string, m *ebpf.Map, reason string) {
	var entries [][]byte
	err := errors.New("its entries have another size")
	switch {
	case name == objects.LBMapFlows && int(m.ValueSize()) == objects.LineBytes:
		entries, err = objects.Lines(m)
	case name == objects.AgentMapConns && int(m.ValueSize()) == binary.Size(objects.AgentConnLine{}):
		entries, err = objects.Conns(m)
	case m.Type() == ebpf.Hash:
		entries, err = keysOf(m)
	case name != objects.LBMapFlows && name != objects.AgentMapConns:
		return
	}
	number := fmt.Sprint(len(entries))
	if err != nil {
		number = fmt.Sprintf("those in %d lines of %d bytes", m.MaxEntries(), m.ValueSize())
	}
	p.Forgotten = fmt.Sprintf("%s flows: %s", number, reason)
}

// keysOf lists the keys of a hash.
func keysOf(m *ebpf.Map) (all [][]byte, err error) {
	var key, value []byte
	it := m.Iterate()
	for it.Next(&key, &value) {
		all = append(all, key)
	}
	return all, it.Err()
}

func (p *Pins) Path(name string) string { return filepath.Join(p.dir, name) }

// Pinner is an object that can be pinned.
type Pinner interface{ Pin(string) error }

// Stage pins objects beside those of an earlier daemon, which stay in use until Commit.
func (p *Pins) Stage(objects map[string]Pinner) error {
	if p.dir == "" {
		return nil
	}
	for name, o := range objects {
		os.Remove(p.Path(name + nextSuffix)) // of a daemon that was killed meanwhile
		if err := o.Pin(p.Path(name + nextSuffix)); err != nil {
			return errors.Join(fmt.Errorf("pin %s: %w", name, err), p.Unstage())
		}
		p.next = append(p.next, name)
	}
	return nil
}

// Unstage takes back the pins since Stage.
func (p *Pins) Unstage() (err error) {
	for _, name := range p.next {
		if e := os.Remove(p.Path(name + nextSuffix)); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	p.next = nil
	return err
}

// Commit puts the new pins into the place of the old pins, now that the programs that use
// them are attached.
func (p *Pins) Commit() error {
	if p.dir == "" {
		return nil
	}
	earlier := ""
	for _, name := range p.next {
		if strings.HasPrefix(name, beforePin) {
			earlier = name
		}
		if err := os.Rename(p.Path(name+nextSuffix), p.Path(name)); err != nil {
			return fmt.Errorf("pin %s: %w", name, err)
		}
	}
	p.next = nil
	p.DropEarlier(earlier)
	others, err := filepath.Glob(p.Path(layouts))
	if err != nil {
		return fmt.Errorf("find pinned maps: %w", err)
	}
	for _, other := range others {
		os.Remove(other)
	}
	if err := os.Mkdir(p.Path(p.made), 0o700); err != nil {
		return fmt.Errorf("pin the layout of the maps: %w", err)
	}
	return nil
}

// keepLink pins the attached link.
func (p *Pins) keepLink(l link.Link) error {
	if p.dir == "" {
		return nil
	}
	if err := l.Pin(p.Path(hook.XDPPin)); err != nil {
		return fmt.Errorf("pin the link: %w", err)
	}
	return nil
}

// Unlock lets the next daemon in. Where nothing is pinned, nothing is left.
func (p *Pins) Unlock() error {
	if p.lock == nil {
		return nil
	}
	p.tidy()
	lock := p.lock
	p.lock = nil
	return lock.Close()
}

// remove unpins all objects: those that no process holds open end.
func (p *Pins) remove() error {
	if p.dir == "" {
		return nil
	}
	return p.empty()
}

// tidy removes the directory and its parents as far as they are empty.
func (p *Pins) tidy() {
	for dir := p.dir; ; dir = filepath.Dir(dir) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			return
		}
	}
}

// Place is the path of a pin, empty if nothing is pinned.
func (p *Pins) Place(name string) string {
	if p.dir == "" {
		return ""
	}
	return p.Path(name)
}
