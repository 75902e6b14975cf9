package study

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Bound is where the requests that count begin or end: a share of the requests, by
// order of arrival, or an instant of arrival.
type Bound struct {
	Share float64
	At    time.Duration
	timed bool
}

var errBound = errors.New("want a share of the requests from 0 to 1, such as 0.25, or a time, such as 30s")

// ParseBound reads a share or a time, which has a unit.
func ParseBound(text string) (Bound, error) {
	if share, err := strconv.ParseFloat(text, 64); err == nil {
		if !(share >= 0 && share <= 1) {
			return Bound{}, errBound
		}
		return Bound{Share: share}, nil
	}
	at, err := time.ParseDuration(text)
	if err != nil || at < 0 {
		return Bound{}, errBound
	}
	return Bound{At: at, timed: true}, nil
}

// Count lets the requests between two bounds count, in place of the farm's own: a time
// replaces a share, a share a time. nil: that end stays as it is.
func (s *Setting) Count(from, to *Bound) error {
	w := &s.Farm.Default
	if w.From == 0 && w.To == 0 {
		w.To = 1
	}
	if from != nil {
		w.From, w.After = from.Share, from.At
	}
	if to != nil {
		w.To, w.Until = to.Share, to.At
		if to.timed {
			w.To = 1
		}
	}
	switch n := float64(w.Requests); {
	case to != nil && to.timed && to.At == 0, w.Until > 0 && w.Until <= w.After:
		return fmt.Errorf("no time lies from %v to %v", w.After, w.Until)
	case int(w.From*n) >= int(w.To*n):
		return fmt.Errorf("none of %d requests lies from %v to %v of them", w.Requests, w.From, w.To)
	}
	return nil
}

// Reaches is an error if the load's requests have all come before those that count.
func (l Load) Reaches() error {
	if l.Work.After < l.Lasts {
		return nil
	}
	return fmt.Errorf("at rho %v the %d requests come within %v, so none counts", l.Rho, l.Work.Requests, l.Lasts.Round(time.Millisecond))
}
