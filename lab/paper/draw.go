package paper

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"proffer/lab/figures"
)

// Progress is how far the drawing is.
type Progress struct {
	Figure   string
	At, Of   int // figures
	Done     int // runs of this figure
	Runs     int
	Left     time.Duration // for all figures
	Complete bool          // all of them
}

// Interrupted lists the missing figures.
type Interrupted struct{ Missing []string }

func (e *Interrupted) Error() string {
	return fmt.Sprintf("interrupted; missing: %s", strings.Join(e.Missing, " "))
}

// Draw draws the figures in turn, on all cores, and saves each in dir
// as soon as it is complete. It returns the files that are complete, also when
// ctx ends: then the error is an *Interrupted. Output depends on the options
// alone, to the bit, except for Measured figures.
func Draw(ctx context.Context, list []Figure, o Options, dir string, progress func(Progress)) ([]string, error) {
	if err := writable(dir); err != nil {
		return nil, err
	}
	d := drawing{ctx: ctx, options: o, begun: time.Now(), progress: progress, Progress: Progress{Of: len(list)}}
	for _, f := range list {
		p := f.plan(o)
		d.total += p.cost() * time.Duration(p.repeats(o))
		d.Left += f.Takes(o)
	}
	var files []string
	for i, f := range list {
		d.At, d.Figure = i+1, f.Name
		picture, err := d.figure(f)
		if ctx.Err() != nil {
			return files, missing(list[i:])
		}
		if err != nil {
			return files, fmt.Errorf("figure %s: %w", f.Name, err)
		}
		if o.Drawn != nil {
			o.Drawn(f.Name, picture)
		}
		saved, err := picture.Save(dir, f.Name)
		files = append(files, saved...)
		if err != nil {
			return files, err
		}
		d.Complete = i == len(list)-1
		d.show()
	}
	return files, nil
}

func missing(list []Figure) error {
	e := &Interrupted{}
	for _, f := range list {
		e.Missing = append(e.Missing, f.Name)
	}
	return e
}

// writable makes dir and tries it before any work is done.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder for figures: %w", err)
	}
	f, err := os.CreateTemp(dir, ".proffer-*")
	if err != nil {
		return fmt.Errorf("write figures into %s: %w", dir, err)
	}
	f.Close()
	return os.Remove(f.Name())
}

// drawing is the work on a list of figures.
type drawing struct {
	Progress
	ctx      context.Context
	options  Options
	progress func(Progress)
	begun    time.Time
	spent    time.Duration // as planned, of the cells done
	total    time.Duration
}

func (d *drawing) show() {
	if d.spent > 0 {
		d.Left = time.Duration(float64(time.Since(d.begun)) / float64(d.spent) * float64(d.total-d.spent))
	}
	d.progress(d.Progress)
}

func (d *drawing) figure(f Figure) (*figures.Figure, error) {
	p := f.plan(d.options)
	m, err := d.measure(p)
	if err != nil {
		return nil, err
	}
	return p.draw(m)
}

type outcome struct {
	cell, seed int
	values     []float64
	err        error
}

// measure runs all cells with all seeds. A run cannot be stopped: when ctx ends
// its outcome does not wait for a reader.
func (d *drawing) measure(p plan) (measured, error) {
	seeds := p.repeats(d.options)
	d.Done, d.Runs = 0, len(p.cells)*seeds
	m := make(measured, len(p.cells))
	for i := range m {
		m[i] = make([][]float64, seeds)
	}
	done := start(d.ctx, p, seeds)
	for d.Done < d.Runs {
		d.show()
		select {
		case <-d.ctx.Done():
			return nil, d.ctx.Err()
		case o := <-done:
			if o.err != nil {
				return nil, o.err
			}
			m[o.cell][o.seed] = o.values
			d.Done++
			d.spent += p.cells[o.cell].cost
		}
	}
	return m, nil
}

func start(ctx context.Context, p plan, seeds int) <-chan outcome {
	runs := len(p.cells) * seeds
	done := make(chan outcome, runs)
	var next atomic.Int64
	var failed atomic.Bool
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for ctx.Err() == nil && !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= runs {
					return
				}
				o := outcome{cell: i / seeds, seed: i % seeds}
				o.values, o.err = p.cells[o.cell].run(uint64(o.seed + 1))
				if o.err != nil {
					failed.Store(true)
				}
				done <- o
			}
		}()
	}
	return done
}
