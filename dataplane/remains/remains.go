// Package remains removes the programs, links and pins of daemons that have ended.
package remains

import (
	"errors"

	"proffer/dataplane/internal/hook"
	"proffer/dataplane/internal/plane"
)

// Remove removes all that daemons left in this network namespace, and nothing else. It returns
// a line for each part that it removed. The remains of a running daemon are an error, and stay.
func Remove() (removed []string, err error) {
	dirs, err := hook.Pinned()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, dir := range dirs {
		if err := plane.RemovePins(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, dir)
	}
	if len(errs) > 0 { // a filter may be the running daemon's
		return removed, errors.Join(errs...)
	}
	filters, err := hook.RemoveStray()
	return append(removed, filters...), err
}
