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
	before := c.Problems()
	for _, p := range found {
		if !slices.Contains(before, p) {
			c.log.Error("packets pass the programs by", "problem", p)
		}
	}
	for _, p := range before {
		if !slices.Contains(found, p) {
			c.log.Info("packets meet the programs again", "problem", p)
		}
	}
	c.problems.mu.Lock()
	defer c.problems.mu.Unlock()
	c.problems.now = found
	return nil
}
