package control

import (
	"slices"
	"sync"
)

// Checker finds the reasons for which packets pass a plane by.
type Checker interface {
	Problems() ([]string, error)
}

// problems are those of the last check.
type problems struct {
	mu  sync.Mutex
	now []string
}

// Problems lists why packets pass the plane by, as the last check found.
func (c *Controller) Problems() []string {
	c.problems.mu.Lock()
	defer c.problems.mu.Unlock()
	return slices.Clone(c.problems.now)
}

// check looks for problems. Each is logged when it comes and when it goes.
func (c *Controller) check() error {
	found, err := c.plane.Problems()
	if err != nil {
		return err
	}
	came, gone := News(c.Problems(), found)
	for _, p := range came {
		c.log.Error("packets pass the programs by", "problem", p)
	}
	for _, p := range gone {
		c.log.Info("packets meet the programs again", "problem", p)
	}
	c.problems.mu.Lock()
	defer c.problems.mu.Unlock()
	c.problems.now = found
	return nil
}

// News is the problems that came since those before, and those that are gone.
func News(before, found []string) (came, gone []string) {
	return without(found, before), without(before, found)
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(p string) bool { return slices.Contains(some, p) })
}
