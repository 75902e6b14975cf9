package experiment

import "time"

// Step is how far an experiment is.
type Step struct {
	Doing       string
	Done, Total int
	Left        time.Duration
}

// pace reports the steps of an experiment, and estimates the time left from
// the time of the steps so far. Until a step is done, each is guessed.
type pace struct {
	began time.Time
	done  int
	total int
	guess time.Duration // of a step
	show  func(Step)
}

// begin prints the next step.
func (p *pace) begin(doing string) { p.report(doing) }

// end prints that it is over.
func (p *pace) end(doing string) {
	p.done++
	p.report(doing)
}

func (p *pace) report(doing string) {
	each := p.guess
	if p.done > 0 {
		each = time.Since(p.began) / time.Duration(p.done)
	}
	p.show(Step{Doing: doing, Done: p.done, Total: p.total, Left: each * time.Duration(p.total-p.done)})
}
