package daemon

import (
	"log/slog"

	"proffer/control"
)

// told is what the log says of a kind of problem: each when it comes, and when it has ended, so that a reload that
// changes nothing says nothing.
type told struct{ found []string }

// tell logs the difference between the problems now and those of the last call.
func (t *told) tell(log *slog.Logger, message, key string, found []string) {
	came, gone := control.News(t.found, found)
	t.found = found
	for _, p := range came {
		log.Warn(message, key, p)
	}
	for _, p := range gone {
		log.Info("no longer: "+message, key, p)
	}
}
