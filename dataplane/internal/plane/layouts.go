package plane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
)

// layoutNumber is the layout of this version, and oldestLayout the first with the lines, digests and
// words that it reads in a table of before (bpf/lb/earlier_table.h). From hintedLayout on hints lie behind the
// lines.
const (
	layoutNumber = 8
	oldestLayout = 2
	hintedLayout = 6
)

// beforePin is the name of the pin of a table of before, with the number of its layout.
const beforePin = "before-"

// Earlier is an earlier daemon's table of flows.
type Earlier struct {
	Map    *ebpf.Map
	Layout int
}

// Lines is the number of its lines.
func (e *Earlier) Lines() uint32 {
	if e.Layout < hintedLayout {
		return e.Map.MaxEntries()
	}
	return objects.TableLines(e.Map.MaxEntries())
}

// isEmpty reports whether no line has an entry.
func (e *Earlier) isEmpty() (bool, error) {
	entries, err := objects.LinesIn(e.Map, e.Lines())
	return len(entries) == 0, err
}

// Bytes is its memory.
func (e *Earlier) Bytes() uint64 { return uint64(e.Map.MaxEntries()) * uint64(e.Map.ValueSize()) }

// Pin is the name under which it is pinned as a table of before.
func (e *Earlier) Pin() string { return fmt.Sprint(beforePin, e.Layout) }

// AdoptFlows returns the pinned table of flows that has the shape of spec and this layout, or nil; and
// the table of another shape or layout where flows are still found. Where two of another shape have
// flows, the newer table is returned: a third table has to wait until the older is empty.
func (p *Pins) AdoptFlows(spec *ebpf.CollectionSpec) (table *ebpf.Map, before *Earlier, err error) {
	var left []*Earlier
	for _, e := range p.earlierTables() {
		if table == nil && e.Layout == layoutNumber && spec.Maps[objects.LBMapFlows].Compatible(e.Map) == nil {
			table = e.Map
			continue
		}
		empty, err := e.isEmpty()
		if err != nil {
			return nil, nil, fmt.Errorf("read a table of flows of before: %w", err)
		}
		if empty {
			e.Map.Close()
			continue
		}
		left = append(left, e)
	}
	if len(left) == 0 {
		return table, nil, nil
	}
	if table == nil && len(left) > 1 && left[0].Layout == layoutNumber {
		table, left = left[0].Map, left[1:]
	}
	for _, e := range left[1:] {
		p.forget(objects.LBMapFlows, e.Map, "two other tables of before are not empty yet")
		e.Map.Close()
	}
	return table, left[0], nil
}

// Numbers returns the pinned numbers of servers, of any layout that this version reads; or nil.
func (p *Pins) Numbers() *ebpf.Map {
	if n := p.layout(); p.link == nil || n < oldestLayout || n > layoutNumber {
		return nil
	}
	m, err := ebpf.LoadPinnedMap(p.Path(objects.LBMapServerByLocator), nil)
	if err != nil {
		return nil
	}
	return m
}

// earlierTables are the pinned tables that this version reads, the newest first.
func (p *Pins) earlierTables() (all []*Earlier) {
	if p.link == nil {
		return nil
	}
	names := []string{objects.LBMapFlows}
	others, _ := filepath.Glob(p.Path(beforePin + "[0-9]*"))
	for _, path := range others {
		names = append(names, filepath.Base(path))
	}
	for _, name := range names {
		layout := p.layout()
		if number, is := strings.CutPrefix(name, beforePin); is {
			layout = numberOf(number)
		}
		m, err := ebpf.LoadPinnedMap(p.Path(name), nil)
		if err != nil {
			continue
		}
		if layout < oldestLayout || layout > layoutNumber || int(m.ValueSize()) != objects.LineBytes {
			m.Close()
			p.forgetLayout(name)
			continue
		}
		all = append(all, &Earlier{m, layout})
	}
	return all
}

// layout is the number of the layout of the pinned maps, or 0.
func (p *Pins) layout() int {
	all, err := filepath.Glob(p.Path(layouts))
	if err != nil || len(all) != 1 {
		return 0
	}
	return numberOf(strings.TrimPrefix(filepath.Base(all[0]), "layout-"))
}

func numberOf(text string) (n int) {
	if _, err := fmt.Sscan(text, &n); err != nil {
		return 0
	}
	return n
}

// DropEarlier removes the pins of tables of before, but that of the name.
func (p *Pins) DropEarlier(keep string) {
	if p.dir == "" {
		return
	}
	others, _ := filepath.Glob(p.Path(beforePin + "[0-9]*"))
	for _, path := range others {
		if name := filepath.Base(path); name != keep && !strings.HasSuffix(name, nextSuffix) {
			os.Remove(path)
		}
	}
}
