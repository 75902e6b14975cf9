package agent

import (
	"errors"
	"fmt"

	"proffer/dataplane"
	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
)

// Recount counts the requests in progress and the open sockets again, while packets flow
// (bpf/agent/recount.h). It returns the number of counts of requests that were wrong and are
// right now.
func (a *Agent) Recount() (int, error) {
	if err := a.beginRecount(); err != nil {
		return 0, err
	}
	swept, err := a.Walk(false)
	if err != nil {
		return 0, err
	}
	return a.endRecount(swept.Unmoved)
}

// SweepTurn also recounts: a recount begins and ends with the sweep of the whole table.
func (a *Agent) SweepTurn() (dataplane.Swept, error) {
	if a.Whole() {
		a.unmoved = 0
		if err := a.beginRecount(); err != nil {
			return dataplane.Swept{}, err
		}
	}
	swept, err := a.Plane.SweepTurn()
	a.unmoved += swept.Unmoved
	if err == nil && a.Whole() {
		swept.Recounted, err = a.endRecount(a.unmoved)
		err = errors.Join(err, a.keepComplete(), a.recountWork())
	}
	return swept, err
}

// beginRecount lets requests and sockets begin in the other count, and waits until all do so.
func (a *Agent) beginRecount() error {
	a.counting++
	if err := a.objs.Counting.Set(a.counting); err != nil {
		return fmt.Errorf("count again: %w", err)
	}
	return a.grace.Wait()
}

// endRecount moves the sockets, which entries of requests did before, and sets the old counts
// to 0, unless an entry may still count in them.
func (a *Agent) endRecount(unmoved uint32) (wrong int, err error) {
	if unmoved > 0 {
		return 0, nil
	}
	if a.sockets != nil {
		if err := a.countOpen(); err != nil {
			return 0, err
		}
	}
	if err := a.grace.Wait(); err != nil {
		return 0, err
	}
	change := objects.AgentLoadChange{Ended: ^a.counting & 1}
	if err := plane.RunRecord(a.objs.EndRecount, &change); err != nil {
		return 0, fmt.Errorf("end the recount: %w", err)
	}
	return int(change.Wrong), nil
}

// setThreshold sets the threshold of a load, in which programs may be counting.
func (a *Agent) setThreshold(number, threshold uint32) error {
	if err := plane.RunRecord(a.objs.SetThreshold, &objects.AgentLoadChange{Load: number, Threshold: threshold}); err != nil {
		return fmt.Errorf("set the threshold of load %d: %w", number, err)
	}
	return nil
}

// purge removes the entries of services that an earlier agent offered: a load with their
// number may be of another service.
func (a *Agent) purge() error {
	if err := a.grace.Wait(); err != nil {
		return err
	}
	_, err := a.Walk(true)
	return err
}
