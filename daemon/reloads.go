package daemon

import (
	"log/slog"
	"slices"
	"strings"
	"sync"

	"proffer/api"
)

// reloads is how the reloads of a daemon went.
type reloads struct {
	mu            sync.Mutex
	done, refused uint64
	why           string // the last one was refused; empty: it was applied
}

// refuse notes a reload that changed nothing.
func (r *reloads) refuse(why error, log *slog.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused++
	r.why = strings.ReplaceAll(why.Error(), "\n", "; ") // a line for all mistakes
	log.Error("configuration not reloaded, the old one stays", "error", why)
}

func (r *reloads) applied(log *slog.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	r.why = ""
	log.Info("configuration reloaded")
}

// report puts a refused reload before all other problems, until a reload is applied.
func (r *reloads) report(s *api.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Reloads, s.Refused = r.done, r.refused
	if r.why != "" {
		s.NotReloaded = "configuration not reloaded, the old one stays: " + r.why
		s.Problems = slices.Insert(s.Problems, 0, s.NotReloaded)
	}
}
