package control

import (
	"log/slog"
	"slices"
	"sync"
)

// problems are those of the last check.
type problems struct {
	mu  sync.Mutex
	now []string
}

// Problems lists why packets pass the plane by, as the last check found.
func (c *Controller) Problems() []string { return c.problems.list() }

// list lists them.
func (p *problems) list() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.now)
}

// check looks for problems. Each is logged when it comes and when it goes.
func (p *problems) check(plane Plane, log *slog.Logger) error {
	found, err := plane.Problems()
	if err != nil {
		return err
	}
	came, gone := News(p.list(), found)
	for _, problem := range came {
		log.Error("packets pass the programs by", "problem", problem)
	}
	for _, problem := range gone {
		log.Info("packets meet the programs again", "problem", problem)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = found
	return nil
}

// News is the problems that came since those before, and those that are gone.
func News(before, found []string) (came, gone []string) {
	return without(found, before), without(before, found)
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(p string) bool { return slices.Contains(some, p) })
}
