package lb

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"proffer/dataplane"
	"proffer/dataplane/objects"
)

// sizeBefore tells the programs of an earlier daemon's table of another size or layout.
func (l *LB) sizeBefore(spec *ebpf.CollectionSpec) error {
	if l.before == nil {
		return nil
	}
	spec.Maps[objects.LBMapBefore].InnerMap.MaxEntries = l.before.Map.MaxEntries()
	if err := spec.Variables["lines_before"].Set(l.before.Lines()); err != nil {
		return fmt.Errorf("set the size of the flow table of before: %w", err)
	}
	return nil
}

// putBefore hands the table of before to the programs.
func (l *LB) putBefore() error {
	if l.before == nil {
		return nil
	}
	if err := l.objs.Before.Put(uint32(0), l.before.Map); err != nil {
		return fmt.Errorf("keep the flow table of before: %w", err)
	}
	return nil
}

// Advice also says that the table has not the size of the configuration.
func (l *LB) Advice() []string {
	all := l.Plane.Advice()
	if l.waits != "" {
		all = append(all, l.waits)
	}
	return all
}

// Before is the number of flows that are still in the table of before.
func (l *LB) Before() uint64 { return l.keptBefore.Load() }

// SweepTurn also sweeps the table of before, with each round of the sweep, and removes it when it is
// empty.
func (l *LB) SweepTurn() (dataplane.Swept, error) {
	swept, err := l.Plane.SweepTurn()
	if err != nil {
		return swept, err
	}
	if l.Whole() {
		earlier, err := l.sweepBefore(objects.LBSweep{})
		if err != nil {
			return swept, err
		}
		swept.Removed += earlier.Removed
	}
	swept.Kept += l.Before()
	return swept, nil
}

// sweepBefore sweeps the table of before, if there is any.
func (l *LB) sweepBefore(how objects.LBSweep) (swept dataplane.Swept, err error) {
	l.sweeping.Lock()
	defer l.sweeping.Unlock()
	if l.before == nil {
		return swept, nil
	}
	if swept, err = l.WalkBy(l.objs.SweepBefore, how, l.before.Lines()); err != nil {
		return swept, err
	}
	l.keptBefore.Store(swept.Kept)
	if swept.Kept > 0 || how.Recolour != 0 {
		return swept, nil
	}
	return swept, l.endBefore()
}

// endBefore lets go of the table of before.
func (l *LB) endBefore() error {
	err := l.objs.Before.Delete(uint32(0))
	if l.attached { // else its pins are the earlier daemon's
		l.Pins.DropEarlier("")
	}
	err = errors.Join(err, l.before.Map.Close())
	l.before = nil
	return err
}

// Recolour also has the entries of the table of before count by the colour of now.
func (l *LB) Recolour() (dataplane.Swept, error) {
	swept, err := l.Plane.Recolour()
	if err != nil {
		return swept, err
	}
	earlier, err := l.sweepBefore(objects.LBSweep{Recolour: 1})
	swept.Kept += earlier.Kept
	swept.Removed += earlier.Removed
	swept.Recoloured += earlier.Recoloured
	return swept, err
}
