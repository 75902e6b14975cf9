package plane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"proffer/dataplane/internal/hook"
)

// Lasting is the part of a plane on several links that outlives its daemon: the pins of the links, of their
// programs and of the maps. The directory is that of the first link.
type Lasting struct {
	Pins
	WhyUnpinned string // why nothing is pinned; empty: it is
	first       int    // the number of the first link
}

// OpenLasting finds the remains of an earlier daemon, as Open does. Where the first link of one is gone, its
// programs leave the other links.
func OpenLasting(dir string, first *net.Interface, layout string) (l Lasting, err error) {
	l.first = first.Index
	if l.Pins, l.WhyUnpinned, err = Open(dir, first, layout); err != nil || l.dir == "" {
		return l, err
	}
	for _, gone := range hook.Forsaken(dir) {
		if err := RemovePins(gone); err != nil {
			return l, errors.Join(err, l.Unlock())
		}
	}
	return l, nil
}

// Adopted reports whether an earlier daemon's plane was taken over.
func (l *Lasting) Adopted() bool { return l.Pins.link != nil }

// Unpinned is the reason why the plane does not outlive its daemon; empty: it does.
func (l *Lasting) Unpinned() string { return l.WhyUnpinned }

// Forgotten are the flows of an earlier daemon that could not be adopted; empty: none.
func (l *Lasting) Forgotten() string { return l.Pins.Forgotten }

// Advice is that of Plane about a link.
func (l *Lasting) Advice(on *Attached) []string {
	return adviceOn(on.Interface, on.whyGeneric, triedAgain(l.WhyUnpinned))
}

// pinOf is the name of a pin that each link has.
func (l *Lasting) pinOf(name string, link int) string {
	if link == l.first {
		return name
	}
	return fmt.Sprintf("%s-%d", name, link)
}

// Attach puts a program on each link, in the order of their numbers; from now on flows and maps outlive this
// process. Links that an earlier daemon had, and this daemon has not, are left. If a part fails, an earlier
// daemon's programs and pins are as they were.
func (l *Lasting) Attach(programs map[*Attached]*ebpf.Program, state map[string]*ebpf.Map) error {
	pinned := map[string]Pinner{}
	for name, m := range state {
		pinned[name] = another[*ebpf.Map]{m}
	}
	for on, prog := range programs {
		pinned[l.pinOf(programPin, on.Index)] = another[*ebpf.Program]{prog}
	}
	if err := l.Stage(pinned); err != nil {
		return err
	}
	var done []*Attached
	for _, on := range slices.SortedFunc(maps.Keys(programs), func(a, b *Attached) int { return a.Index - b.Index }) {
		if err := l.put(on, programs[on]); err != nil {
			return errors.Join(err, l.revert(done), l.Unstage())
		}
		done = append(done, on)
	}
	return errors.Join(l.Commit(), l.leaveOthers(programs))
}

// another is an object that has a new pin each time, and keeps those that it has.
type another[T interface {
	Pinner
	io.Closer
	Clone() (T, error)
}] struct{ of T }

// Pin pins it.
func (a another[T]) Pin(path string) error {
	one, err := a.of.Clone()
	if err != nil {
		return err
	}
	return errors.Join(one.Pin(path), one.Close())
}

// put puts a program on a link, in the place of the program that is there.
func (l *Lasting) put(on *Attached, prog *ebpf.Program) (err error) {
	if on.xdp == nil && l.dir != "" {
		on.xdp = leftAttached(l.Path(l.pinOf(hook.XDPPin, on.Index)), on.Index)
	}
	if on.replaced = on.xdp != nil; on.replaced {
		if err := on.xdp.Update(prog); err != nil {
			return fmt.Errorf("replace the program on %s: %w", on.Name, err)
		}
		if modeOf(on.Index) == generic && on.whyGeneric == "" {
			on.whyGeneric = putEarlier
		}
		return nil
	}
	if err := on.Attach(prog); err != nil {
		return err
	}
	return l.keep(on.xdp, l.pinOf(hook.XDPPin, on.Index))
}

// Add puts a program on a link while the plane runs, if no program of ours is there.
func (l *Lasting) Add(on *Attached, prog *ebpf.Program) error {
	if on.xdp != nil {
		return nil
	}
	return errors.Join(l.put(on, prog), l.keep(another[*ebpf.Program]{prog}, l.pinOf(programPin, on.Index)))
}

// Leave takes the program off a link, and its pins.
func (l *Lasting) Leave(on *Attached) error {
	if on.xdp == nil {
		return nil
	}
	return errors.Join(on.Close(), l.leave(on.Index))
}

func (l *Lasting) leave(index int) error {
	if l.dir == "" {
		return nil
	}
	err := hook.DetachXDP(l.Path(l.pinOf(hook.XDPPin, index)))
	for _, name := range []string{hook.XDPPin, programPin} {
		if e := os.Remove(l.Path(l.pinOf(name, index))); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// leaveOthers leaves the links of an earlier daemon that have no program here.
func (l *Lasting) leaveOthers(programs map[*Attached]*ebpf.Program) (err error) {
	if l.dir == "" {
		return nil
	}
	here := map[string]bool{}
	for on := range programs {
		here[l.pinOf(hook.XDPPin, on.Index)] = true
	}
	for _, pin := range hook.XDPPins(l.dir) {
		name := filepath.Base(pin)
		index := numberOf(strings.TrimPrefix(name, hook.XDPPin+"-"))
		if !here[name] && index != 0 {
			err = errors.Join(err, l.leave(index))
		}
	}
	return err
}

// revert gives links their earlier programs back, and leaves those that had none.
func (l *Lasting) revert(links []*Attached) (err error) {
	for _, on := range links {
		if !on.replaced {
			err = errors.Join(err, l.Leave(on))
			continue
		}
		old, e := ebpf.LoadPinnedProgram(l.Path(l.pinOf(programPin, on.Index)), nil)
		if e == nil {
			e = errors.Join(on.xdp.Update(old), old.Close())
		}
		if e != nil {
			err = errors.Join(err, fmt.Errorf("return to the program before on %s: %w", on.Name, e))
		}
	}
	return err
}

// Detach takes the programs off the links, and removes the pins.
func (l *Lasting) Detach(links ...*Attached) (err error) {
	for _, on := range links {
		err = errors.Join(err, l.Leave(on))
	}
	return errors.Join(err, l.remove())
}

// Close frees the memory of this process; pinned programs go on.
func (l *Lasting) Close(links ...*Attached) (err error) {
	for _, on := range links {
		err = errors.Join(err, on.Close())
	}
	if l.Pins.link != nil {
		err = errors.Join(err, l.Pins.link.Close())
	}
	return errors.Join(err, l.Unlock())
}

// keep pins an object, in the place of the object of that name.
func (l *Lasting) keep(o Pinner, name string) error {
	if l.dir == "" {
		return nil
	}
	os.Remove(l.Path(name))
	if err := o.Pin(l.Path(name)); err != nil {
		return fmt.Errorf("pin %s: %w", name, err)
	}
	return nil
}

// Left is an earlier daemon's map of this layout, which the caller closes; nil: there is none. The entries of
// another layout are noted as forgotten.
func (l *Lasting) Left(name string) *ebpf.Map {
	if l.Pins.link == nil {
		return nil
	}
	if !l.read {
		l.forgetLayout(name)
		return nil
	}
	m, err := ebpf.LoadPinnedMap(l.Path(name), nil)
	if err != nil {
		return nil
	}
	return m
}

// Forget notes why the entries of a map that is left are not adopted, and closes it.
func (l *Lasting) Forget(name string, m *ebpf.Map, why string) {
	l.forget(name, m, why)
	m.Close()
}

// NotesMap is the name of a map that no program reads: a record of the daemon's for the next daemon.
const NotesMap = "notes"

// Notes is that record.
type Notes[T any] struct{ m *ebpf.Map }

// NewNotes makes the map with a first record.
func NewNotes[T any](first T) (n Notes[T], err error) {
	if n.m, err = ebpf.NewMap(&ebpf.MapSpec{Name: NotesMap, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(binary.Size(first)), MaxEntries: 1}); err != nil {
		return n, fmt.Errorf("make the record for the next daemon: %w", err)
	}
	return n, n.Write(first)
}

// Write replaces the record.
func (n Notes[T]) Write(record T) error {
	if err := n.m.Put(uint32(0), record); err != nil {
		return fmt.Errorf("write the record for the next daemon: %w", err)
	}
	return nil
}

// Read returns the record.
func (n Notes[T]) Read() (record T, err error) {
	if err = n.m.Lookup(uint32(0), &record); err != nil {
		return record, fmt.Errorf("read the record for the next daemon: %w", err)
	}
	return record, nil
}

// Map is the record's map.
func (n Notes[T]) Map() *ebpf.Map { return n.m }

// ReadNotes reads the record of an earlier daemon.
func ReadNotes[T any](l *Lasting) (record T, found bool) {
	m := l.Left(NotesMap)
	if m == nil {
		return record, false
	}
	defer m.Close()
	raw, err := m.LookupBytes(uint32(0))
	if err != nil || raw == nil || len(raw) < binary.Size(record) {
		return record, false
	}
	return record, binary.Read(bytes.NewReader(raw), binary.NativeEndian, &record) == nil
}
