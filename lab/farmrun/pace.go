package farmrun

import (
	"fmt"
	"time"
)

// Step is how far an experiment is.
type Step struct {
	Doing       string
	Done, Total int
	Left        time.Duration
}

// Pace reports the steps of an experiment, and estimates the time left from
// the time of the steps so far. Until a step is done, each is guessed.
type Pace struct {
	Began time.Time
	done  int
	Total int
	Guess time.Duration // of a step
	Show  func(Step)
}

// Begin prints the next step.
func (p *Pace) Begin(doing string) { p.report(doing) }

// End prints that it is over.
func (p *Pace) End(doing string) {
	p.done++
	p.report(doing)
}

func (p *Pace) report(doing string) {
	each := p.Guess
	if p.done > 0 {
		each = time.Since(p.Began) / time.Duration(p.done)
	}
	p.Show(Step{Doing: doing, Done: p.done, Total: p.Total, Left: each * time.Duration(p.Total-p.done)})
}

// Left is a duration as progress shows it.
func Left(d time.Duration) string {
	d = d.Round(time.Second)
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}
