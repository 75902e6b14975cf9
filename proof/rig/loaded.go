package rig

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"proffer/dataplane"
	"proffer/dataplane/objects"
	"proffer/policy"
)

// The verifier takes most of a short test's time, so programs are loaded once a package: a test
// gets those that an earlier test is done with, if constants and sizes are the same, and their
// maps are then as they were after loading.

// loaded is a set of programs and maps in the kernel.
type loaded struct {
	objects  reflect.Value // a struct of pointers to programs and maps, as a plane has it
	maps     []resettable  // all that the programs use, with their variables
	attached bool          // a link may run them after the test
}

var done = idle{sets: map[string][]*loaded{}}

// The programs as they ship, each read once.
var (
	lbSpec    = sync.OnceValues(objects.LoadLB)
	agentSpec = sync.OnceValues(objects.LoadAgent)
)

func copied(read func() (*ebpf.CollectionSpec, error)) func() (*ebpf.CollectionSpec, error) {
	return func() (*ebpf.CollectionSpec, error) {
		spec, err := read()
		return spec.Copy(), err
	}
}

// Again are programs that a test may have from an earlier test. The change sets constants, sizes and
// flags of maps, and changes no instruction. A plane that pins its maps, or adopts pinned maps, has
// programs of its own. A test that puts its plane on a link calls attached: links may run the programs
// for a while after it.
func Again(t testing.TB, read func() (*ebpf.CollectionSpec, error), pin string, change func(*ebpf.CollectionSpec) error) (programs dataplane.Programs, attached func()) {
	if pin != "" {
		return dataplane.Shipped(copied(read), change), func() {}
	}
	var s *loaded
	load := func(spec *ebpf.CollectionSpec, to any, _ *ebpf.CollectionOptions) (err error) {
		plane := reflect.ValueOf(to).Elem()
		name := nameOf(spec, plane.Type())
		if s, err = take(spec, name, plane.Type()); err != nil {
			return err
		}
		t.Cleanup(func() { done.giveBack(name, s) }) // after the plane is closed
		return s.cloneTo(plane)
	}
	return dataplane.Programs{Read: copied(read), Change: alike(change), Load: load}, func() { s.attached = true }
}

// alike is a change that also makes random constants the same in all tests, and lets user space clear
// each array at once.
func alike(change func(*ebpf.CollectionSpec) error) func(*ebpf.CollectionSpec) error {
	return func(spec *ebpf.CollectionSpec) error {
		for _, m := range spec.Maps {
			if m.Type == ebpf.Array {
				m.Flags |= Mmapable
			}
		}
		secret, key := spec.Variables["limit_secret"], spec.Variables["flow_key"]
		err := secret.Set(slices.Repeat([]byte{0x5a}, int(secret.Size())))
		if !slices.ContainsFunc(key.Value, func(b byte) bool { return b != 0 }) { // the agent's, not yet known
			err = errors.Join(err, key.Set(policy.NewDigestKey(CandidateKeyOfTests)))
		}
		return errors.Join(err, change(spec))
	}
}

// nameOf tells sets apart that no test may exchange for each other.
func nameOf(spec *ebpf.CollectionSpec, objects reflect.Type) string {
	h := fnv.New128a()
	fmt.Fprint(h, objects)
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
		for m := spec.Maps[name]; m != nil; m = m.InnerMap {
			fmt.Fprintln(h, name, m.Type, m.KeySize, m.ValueSize, m.MaxEntries, m.Flags)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Variables)) {
		if v := spec.Variables[name]; v.SectionName == ".rodata" {
			fmt.Fprintln(h, name, v.Value)
		}
	}
	return string(h.Sum(nil))
}

// take returns a set that an earlier test is done with, or loads one.
func take(spec *ebpf.CollectionSpec, name string, objects reflect.Type) (*loaded, error) {
	if s := done.take(name); s != nil {
		return s, s.reset(spec)
	}
	s := &loaded{objects: reflect.New(objects).Elem()}
	if err := spec.LoadAndAssign(s.objects.Addr().Interface(), nil); err != nil {
		return nil, err
	}
	return s, s.findMaps()
}

// idle are the sets that no test uses, by their names.
type idle struct {
	sync.Mutex
	sets map[string][]*loaded
}

func (d *idle) take(name string) *loaded {
	d.Lock()
	defer d.Unlock()
	sets := d.sets[name]
	if len(sets) == 0 {
		return nil
	}
	last := len(sets) - 1
	d.sets[name] = sets[:last]
	return sets[last]
}

// giveBack lets later tests have a set, unless a link may still run it.
func (d *idle) giveBack(name string, s *loaded) {
	if s.attached {
		s.close()
		return
	}
	d.Lock()
	defer d.Unlock()
	d.sets[name] = append(d.sets[name], s)
}

// leaf is a field of a plane's objects: a pointer to a program, a map or a variable.
type leaf struct {
	reflect.Value
	name string // in C
}

func leaves(objects reflect.Value) (all []leaf) {
	for i := range objects.NumField() {
		f := objects.Field(i)
		if name, named := objects.Type().Field(i).Tag.Lookup("ebpf"); named {
			all = append(all, leaf{f, name})
		} else {
			all = append(all, leaves(f)...)
		}
	}
	return all
}

// cloneTo gives the fields of a plane descriptors of its own of the set's objects.
func (s *loaded) cloneTo(plane reflect.Value) error {
	to := leaves(plane)
	for i, from := range leaves(s.objects) {
		var clone any = from.Interface()
		var err error
		switch o := clone.(type) {
		case *ebpf.Map:
			clone, err = o.Clone()
		case *ebpf.Program:
			clone, err = o.Clone()
		}
		if err != nil {
			return fmt.Errorf("clone %s: %w", from.name, err)
		}
		to[i].Set(reflect.ValueOf(clone))
	}
	return nil
}

func (s *loaded) close() {
	for _, m := range s.maps {
		m.Close()
	}
	for _, f := range leaves(s.objects) {
		if c, ok := f.Interface().(io.Closer); ok {
			c.Close()
		}
	}
}
