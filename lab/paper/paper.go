// Package paper draws the simulated and computed figures of the four papers
// again (6LB 2018, SRLB 2017, HLB 2022), and two of our own, each from the
// simulator, the model or the consistent-hash table that the rest of Proffer
// uses, and one from the bench. A figure is a plan: the cells measured with every seed, and how the
// measurements are drawn. Where a paper leaves an input open, or a figure can
// only be had in another form, Figure.Differs states it.
package paper

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"

	"proffer/lab/figures"
	"proffer/schema"
)

// Figure is one that can be drawn.
type Figure struct {
	Name    string // as "6lb-8a": paper, number, part
	Shows   string
	Differs string // from the paper's; empty: in nothing that is known
	plan    func(o Options) plan
}

// Options of a run.
type Options struct {
	Seeds int  // runs of each measurement, with the seeds 1 to Seeds
	Quick bool // a sketch: few requests, few points

	Drawn func(name string, f *figures.Figure) // of each figure; nil: nothing
}

// Takes is about how long a figure takes on this machine if nothing else runs.
func (f Figure) Takes(o Options) time.Duration {
	p := f.plan(o)
	cores := max(min(runtime.GOMAXPROCS(0), len(p.cells)*p.repeats(o)), 1)
	return time.Duration(float64(p.cost()) * float64(p.repeats(o)) / float64(cores))
}

// Measured reports whether a figure shows the machine where it is drawn: only root
// can draw it, and never twice with the same bytes.
func (f Figure) Measured() bool { return f.plan(Options{Seeds: 1}).measured }

// Figures lists all there are, in the order of the papers.
func Figures() []Figure {
	return slices.Concat(hashFigures(), modelFigures(), rateFigures(), distributionFigures(), throughputFigures(), srlbFigures(),
		twoServers(), hlbFigures(), weightFigures(), sensitivityFigures(), changeFigures(), edgeFigures(), ourFigures())
}

// Named are the figures of these names. "6lb-8" stands for all its parts.
func Named(names []string) ([]Figure, error) {
	all := Figures()
	var chosen []Figure
	seen := map[string]bool{}
	for _, name := range names {
		found := false
		for _, f := range all {
			part, of := strings.CutPrefix(f.Name, name)
			if !of || part != "" && !isPart(name, part) {
				continue
			}
			found = true
			if !seen[f.Name] {
				seen[f.Name] = true
				chosen = append(chosen, f)
			}
		}
		if !found {
			return nil, unknown(name, all)
		}
	}
	return chosen, nil
}

// isPart reports whether a figure of this number may have this part.
func isPart(number, part string) bool {
	return number != "" && unicode.IsDigit(rune(number[len(number)-1])) && len(part) == 1 && unicode.IsLower(rune(part[0]))
}

func unknown(name string, all []Figure) error {
	nearest, least := "", 1<<30
	for _, f := range all {
		if d := schema.Distance(name, f.Name); d < least {
			nearest, least = f.Name, d
		}
	}
	return fmt.Errorf("unknown figure %q: did you mean %s? --list prints all", name, nearest)
}
