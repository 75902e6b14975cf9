package agent

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/foreign"
	"proffer/topo"
)

// work counts the work of services (bpf/work/work.bpf.c). Its programs run where the kernel
// switches tasks and moves data, on the whole host, so they are loaded only if a service needs
// them.
type work struct {
	coll   *ebpf.Collection
	links  map[string]link.Link
	counts []uint64          // of each service, as the programs count
	turn   []uint64          // the number of recounts
	ports  []uint64          // a bit for each port
	barred map[string]string // of these, those that are not entered, and why
	spaces []string          // network namespaces of services, by path; empty: this namespace
}

// The knowledge of sockets and tasks outlives an agent, with the counts.
var workMaps = []string{objects.WorkMapWorks, objects.WorkMapWorkTurn, objects.WorkMapWorkSockets, objects.WorkMapWorkTasks}

// newWork loads and attaches the programs. Their maps are those of an earlier agent, or new
// but for the counts.
func newWork(maps map[string]*ebpf.Map) (_ *work, err error) {
	spec, err := objects.LoadWork()
	if err != nil {
		return nil, fmt.Errorf("read the programs: %w", err)
	}
	if err := keepKnown(spec); err != nil {
		return nil, err
	}
	w := &work{links: map[string]link.Link{}}
	if w.coll, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps}); err != nil {
		return nil, plane.LoadError("work", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	for words, name := range map[*[]uint64]string{&w.counts: objects.WorkMapWorks, &w.turn: objects.WorkMapWorkTurn, &w.ports: objects.WorkMapWorkPorts} {
		if *words, err = wordsOf(w.coll.Maps[name]); err != nil {
			return nil, fmt.Errorf("map %s into memory: %w", name, err)
		}
	}
	return w, w.attach()
}

// keepKnown leaves the programs that have their tracepoints in this kernel. Data that goes out has two:
// one is enough.
func keepKnown(spec *ebpf.CollectionSpec) error {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("read the kernel's types: %w", err)
	}
	sends := false
	for name, p := range spec.Programs {
		at, isTracepoint := strings.CutPrefix(p.SectionName, "tp_btf/")
		if !isTracepoint {
			continue
		}
		var typedef *btf.Typedef
		if err := kernel.TypeByName("btf_trace_"+at, &typedef); err != nil {
			delete(spec.Programs, name)
			continue
		}
		sends = sends || name == objects.WorkProgDataSent
	}
	if sends {
		delete(spec.Programs, objects.WorkProgDataSentTcp)
	}
	return nil
}

// attach attaches all programs but those of a recount. The program that finds members is the
// last, so that no change of a member is missed.
func (w *work) attach() error {
	names := []string{objects.WorkProgDataRead}
	for name, p := range w.coll.Programs {
		if name != objects.WorkProgDataRead && !slices.Contains(recounts, name) && p != nil {
			names = append(names, name)
		}
	}
	slices.Reverse(names)
	for _, name := range names {
		l, err := link.AttachTracing(link.TracingOptions{Program: w.coll.Programs[name]})
		if err != nil {
			return fmt.Errorf("attach %s: %w", name, err)
		}
		w.links[name] = l
	}
	return nil
}

// pin puts the links into the place of an earlier agent's, which end. Without w, nothing of an
// earlier agent's stays: its knowledge would grow old.
func (w *work) pin(pins *plane.Pins) error {
	if pins.Place("") == "" {
		return nil
	}
	old, err := filepath.Glob(pins.Place(linkPin + "*"))
	if err != nil {
		return fmt.Errorf("find the links that count work: %w", err)
	}
	if w == nil {
		for _, name := range workMaps {
			old = append(old, pins.Place(name))
		}
	}
	for _, at := range old {
		if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("end the counting of work: %w", err)
		}
	}
	if w == nil {
		return nil
	}
	for name, l := range w.links {
		if err := l.Pin(pins.Place(linkPin + name)); err != nil {
			return fmt.Errorf("pin %s: %w", name, err)
		}
	}
	return nil
}

const linkPin = "work-" // and the name of a program

// offer counts these services, and no others. Each has its number. A nil w counts nothing.
func (w *work) offer(services []topo.Offering, numbers []uint32) error {
	if w == nil {
		return nil
	}
	want, ports := map[objects.WorkWorkPlace]uint32{}, make([]uint64, len(w.ports))
	w.spaces = w.spaces[:0]
	for i := range services {
		s := &services[i]
		if !s.Measure.Work() || whyNoWork(s) != "" {
			continue
		}
		space, err := namespaceAt(s.Netns)
		if err != nil {
			return fmt.Errorf("service %s: %w", s.Name, err)
		}
		if !slices.Contains(w.spaces, s.Netns) {
			w.spaces = append(w.spaces, s.Netns)
		}
		place := objects.WorkWorkPlace{Netns: space, Port: s.VIP.Port}
		place.Vip.In6U.U6Addr8 = s.VIP.Addr.As16()
		want[place] = numbers[i]
		ports[s.VIP.Port/64] |= 1 << (s.VIP.Port % 64)
	}
	places := w.coll.Maps[objects.WorkMapWorkPlaces]
	var place objects.WorkWorkPlace
	var number uint32
	var gone []objects.WorkWorkPlace
	it := places.Iterate()
	for it.Next(&place, &number) {
		if _, wanted := want[place]; !wanted {
			gone = append(gone, place)
		}
	}
	errs := []error{it.Err()}
	for _, place := range gone {
		errs = append(errs, places.Delete(place))
	}
	for place, number := range want {
		errs = append(errs, places.Put(place, number))
	}
	for i, word := range ports {
		atomic.StoreUint64(&w.ports[i], word)
	}
	return errors.Join(errs...)
}

// namespaceAt is the number of a network namespace; an empty path is this namespace. A path where nothing is,
// or another file by now, has none.
func namespaceAt(path string) (uint64, error) {
	at := cmp.Or(path, "/proc/thread-self/ns/net")
	f, err := foreign.OpenNamespace(at)
	if err != nil && path != "" {
		return 0, nil
	}
	var ns unix.Stat_t
	if err == nil {
		defer f.Close()
		err = unix.Fstat(int(f.Fd()), &ns)
	}
	if err != nil {
		return 0, fmt.Errorf("find the network namespace: %w", err)
	}
	return ns.Ino, nil
}

// read returns the work of a service, at a time of CLOCK_MONOTONIC.
func (w *work) read(number uint32, now time.Duration) *dataplane.Work {
	at := w.counts[int(number)*workWords:]
	term := func(i int) uint32 {
		n := int32(0)
		for half := range 2 {
			word := atomic.LoadUint64(&at[half*halfWords+i/2])
			n += int32(word >> (32 * (i % 2)))
		}
		return uint32(max(0, n))
	}
	return &dataplane.Work{
		Unread: term(objects.WorkUnread), Early: term(objects.WorkEarly), Run: term(objects.WorkRun),
		Blocked: term(objects.WorkBlocked), Out: max(term(objects.WorkOut), w.shared(number, now)),
	}
}

// shared is 1 while an answer is likely owed on a connection to others that many requests share
// (bpf/work/works.h).
func (w *work) shared(number uint32, now time.Duration) uint32 {
	last := time.Duration(atomic.LoadUint64(&w.counts[int(number)*workWords+2*halfWords]))
	if last != 0 && (now-last).Abs() < objects.WorkSharedMs*time.Millisecond {
		return 1
	}
	return 0
}

// close ends the counting, unless it is pinned; nil counts nothing.
func (w *work) close() error {
	if w == nil {
		return nil
	}
	var errs []error
	for _, l := range w.links {
		errs = append(errs, l.Close())
	}
	for _, words := range []*[]uint64{&w.counts, &w.turn, &w.ports} {
		if *words != nil {
			errs = append(errs, unix.MunmapPtr(unsafe.Pointer(&(*words)[0]), uintptr(8*len(*words))))
			*words = nil
		}
	}
	w.coll.Close()
	return errors.Join(errs...)
}
