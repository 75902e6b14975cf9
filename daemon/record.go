package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"proffer/history"
	"proffer/topo"
)

// keepEvery is how often the LB tries to write a record that it could not write.
const keepEvery = 2 * time.Second

// recordOf names an LB and its farm, whose LBs all have the same key of candidates.
func recordOf(cfg *topo.LB) string {
	farm := sha256.Sum256(append([]byte("proffer record "), cfg.CandidateKey[:]...))
	return fmt.Sprintf("%v in farm %x", cfg.Locator, farm[:8])
}

// openRecord reads the record of the pools that this LB has served before.
func (r *lb) openRecord(cfg *topo.LB) (err error) {
	r.store, r.record, err = history.Open(cfg.State, recordOf(cfg), r.moment())
	var corrupt *history.Corrupt
	var foreign *history.Foreign
	switch {
	case errors.As(err, &corrupt):
		r.host.Log.Warn("the record of earlier pools is lost: flows of pools that `history` does not have are not recovered, and a lower version is not noticed",
			"error", corrupt)
		r.lost = fmt.Sprintf("the record of earlier pools is lost: %v", corrupt)
	case errors.As(err, &foreign): // keep names it
	default:
		return err
	}
	return nil
}

// keep writes a record. That it cannot be written is a problem until it can: the LB serves, and takes no
// other pools.
func (r *lb) keep(record *history.Record) error {
	err := r.store.Write(record)
	switch {
	case err != nil && r.unkept == nil:
		r.host.Log.Error("this LB serves, but takes no other pools until it can record them", "error", err)
	case err == nil && r.unkept != nil:
		r.host.Log.Info("the pools are recorded again: a change that was refused needs another reload")
	}
	r.unkept = err
	return err
}

// unrecorded is the problem of a record that cannot be written.
func (r *lb) unrecorded() []string {
	if r.unkept == nil {
		return nil
	}
	return []string{fmt.Sprintf("other pools are refused: %v", r.unkept)}
}

// keeping writes the record as soon as it can be written, until ctx ends.
func (r *lb) keeping(ctx context.Context) error {
	ticks, stop := r.host.Clock.Tick(keepEvery)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
		r.mu.Lock()
		if r.unkept != nil {
			r.keep(r.record)
		}
		r.mu.Unlock()
	}
}
