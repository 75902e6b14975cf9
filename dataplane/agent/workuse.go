package agent

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
	"proffer/topo"
)

// needsWork reports whether the work of a service has to be counted.
func needsWork(services []topo.Offering) bool {
	return slices.ContainsFunc(services, func(s topo.Offering) bool { return s.Measure.Work() && whyNoWork(&s) == "" })
}

// whyNoWork is the reason why the work of a service cannot be counted on any kernel.
func whyNoWork(s *topo.Offering) string {
	switch {
	case s.VIP.Protocol == topo.UDP:
		return "udp has no connections"
	case s.Owner == topo.Table:
		return "the sockets are out of sight"
	}
	return ""
}

// adoptWork returns an earlier agent's knowledge of sockets and tasks, with its counts, all or
// nothing.
func (a *Agent) adoptWork() map[string]*ebpf.Map {
	spec, err := objects.LoadWork()
	if err != nil || !needsWork(a.services) {
		return nil
	}
	if _, err := os.Lstat(a.Pins.Place(linkPin + objects.WorkProgDataRead)); err != nil {
		return nil // no program has kept it up to date
	}
	found := a.Pins.Adopt(spec, workMaps...)
	if len(found) == len(workMaps) {
		return found
	}
	for _, m := range found {
		m.Close()
	}
	return nil
}

// beginWork counts the work of the services, if any needs it and the kernel allows it.
func (a *Agent) beginWork(services []topo.Offering, known map[string]*ebpf.Map) {
	if !needsWork(services) {
		return
	}
	maps := with(known, objects.WorkMapWorks, a.objs.Works)
	var err error
	if a.work, err = newWork(maps); err != nil {
		a.work, a.noWork = nil, err.Error()
	}
}

// with is a copy of maps with a map more.
func with(maps map[string]*ebpf.Map, name string, m *ebpf.Map) map[string]*ebpf.Map {
	more := map[string]*ebpf.Map{name: m}
	for n, m := range maps {
		if n != name {
			more[n] = m
		}
	}
	return more
}

// recountWork counts work again.
func (a *Agent) recountWork() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.work.recount(a.grace)
}

// whyInstead is the reason why a service has another measure than the configured measure.
func (a *Agent) whyInstead(s *topo.Offering) string {
	if a.measureOf(s) == s.Measure {
		return ""
	}
	return cmp.Or(whyNoWork(s), a.noWork)
}

// measureOf is the measure in use for a service.
func (a *Agent) measureOf(s *topo.Offering) topo.Measure {
	if s.Measure.Work() && (a.work == nil || whyNoWork(s) != "") {
		return s.Measure.Row().Instead
	}
	return s.Measure
}

// NoWork is why the work of no service can be counted here; empty: it can, or no service
// needs it.
func (a *Agent) NoWork() string { return a.noWork }

// startWork is beginWork at a reload.
func (a *Agent) startWork(services []topo.Offering) error {
	if a.work != nil || a.noWork != "" {
		return nil
	}
	a.beginWork(services, nil)
	if a.work == nil {
		return nil
	}
	for range 2 { // the counts may be of tasks and sockets before
		if err := a.work.recount(a.grace); err != nil {
			return err
		}
	}
	for _, name := range workMaps {
		if at := a.Pins.Place(name); at != "" {
			if err := a.work.coll.Maps[name].Pin(at); err != nil {
				return fmt.Errorf("pin %s: %w", name, err)
			}
		}
	}
	return a.work.pin(&a.Pins)
}

// endWork detaches the programs if no service needs them any more.
func (a *Agent) endWork() error {
	if a.work == nil || needsWork(a.services) {
		return nil
	}
	w, none := a.work, (*work)(nil)
	a.work = nil
	return errors.Join(none.pin(&a.Pins), w.close())
}
