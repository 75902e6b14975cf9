package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/dataplane"
	"proffer/lab/farmrun"
	"proffer/lab/paper"
	"proffer/lab/tables"
)

// figuresFlags are the flags before they are checked.
type figuresFlags struct {
	all   bool
	list  bool
	quick bool
	out   string
	seeds int
	kept
}

func newFigures() *cobra.Command {
	f := &figuresFlags{}
	cmd := &cobra.Command{
		Use:   "figures [NAME…|--all|--list]",
		Short: "Draw the papers' figures again",
		Long: `Draws figures of the 6LB, SRLB and HLB papers, and our own, as SVG, PNG and CSV,
from the simulator, the analytic model and the consistent-hash table. Error bars
are 95 % intervals over seeds; published values stand beside ours where the
papers' text gives them. The same options give the same bytes.

6lb-13 is the one that is measured, on this machine: it runs rows of proffer-lab bench,
needs root and a CPU with nothing else on it, and is not among --all.

A NAME is a paper, a number and a part, as 6lb-8a; 6lb-8 is all its parts. --list
lists the figures, their differences from the paper, and their running times. --quick
draws sketches from few requests. Ctrl-C keeps the figures that are complete and
names the others. --result keeps what the papers'
texts state of these figures beside ours: docs/evidence/simulated.md.`,
		Example: `  proffer-lab figures 6lb-7 6lb-8 6lb-9
  proffer-lab figures --all --seeds 5 --out figures-out`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, names []string) error { return runFigures(cmd, f, names) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.all, "all", false, "draw all figures that are not measured")
	flags.BoolVar(&f.list, "list", false, "print name, content and estimated time of each figure")
	flags.BoolVar(&f.quick, "quick", false, "draw sketches: few requests, few points, two seeds unless --seeds is given")
	f.flag(flags)
	flags.StringVar(&f.out, "out", "figures-out", "write into `DIR`")
	flags.IntVar(&f.seeds, "seeds", 10, "runs of each measurement, with the seeds 1 to `N`")
	return cmd
}

func runFigures(cmd *cobra.Command, f *figuresFlags, names []string) error {
	options := paper.Options{Seeds: f.seeds, Quick: f.quick}
	if f.quick && !cmd.Flags().Changed("seeds") {
		options.Seeds = 2
	}
	chosen, err := f.choose(names)
	switch {
	case err != nil:
		return cli.BadUsage(err)
	case f.seeds < 1 || f.seeds > maxSeeds:
		return cli.BadUsagef("--seeds %d: want 1 to %d", f.seeds, maxSeeds)
	case f.list:
		return listFigures(cmd.OutOrStdout(), chosen, options)
	}
	packages := []string{"./lab/paper", "-./lab/bench", "-./lab/farmrun"} // those two measure
	if slices.ContainsFunc(chosen, paper.Figure.Measured) {
		packages = packages[:1]
		if err := dataplane.Preflight(); err != nil {
			return err
		}
	}
	if err := f.open(); err != nil {
		return cli.BadUsage(err)
	}
	stated := paper.NewStated()
	options.Drawn = stated.Draws
	show := newProgress(cmd.ErrOrStderr())
	files, err := paper.Draw(cmd.Context(), chosen, options, f.out, func(p paper.Progress) { show.update(figuresLine(p), p.Complete) })
	show.end()
	for _, file := range files {
		fmt.Fprintln(cmd.OutOrStdout(), file)
	}
	if err != nil || f.path == "" {
		return err
	}
	return f.keepStated(cmd, stated, packages)
}

// keepStated keeps what the papers state of the figures beside ours.
func (f *figuresFlags) keepStated(cmd *cobra.Command, stated *paper.Stated, packages []string) error {
	if stated.Empty() {
		return errors.New("--result: the papers' texts state nothing of these figures that could be kept")
	}
	if len(stated.Missing) > 0 {
		return fmt.Errorf("--result: these figures have not all that the papers state, as %s: draw them without --quick", stated.Missing[0])
	}
	record := tables.Record(io.Discard)
	if err := stated.Print(record); err != nil {
		return err
	}
	return f.keep(cmd, packages, record.Parts(), nil)
}

// choose are the figures that were named, all for a bare --list, and those that
// need no root for --all.
func (f *figuresFlags) choose(names []string) ([]paper.Figure, error) {
	switch {
	case f.all && len(names) > 0:
		return nil, fmt.Errorf("--all and %q: want one of them", names)
	case len(names) > 0:
		return paper.Named(names)
	case f.all:
		return slices.DeleteFunc(paper.Figures(), paper.Figure.Measured), nil
	case f.list:
		return paper.Figures(), nil
	}
	return nil, errors.New("which figures? Name some, or use --all; --list prints the names")
}

func figuresLine(p paper.Progress) string {
	if p.Complete {
		return fmt.Sprintf("%d of %d figures", p.At, p.Of)
	}
	return fmt.Sprintf("[%d/%d] %-10s %4d of %d runs, %s left", p.At, p.Of, p.Figure, p.Done, p.Runs, farmrun.Left(p.Left))
}

// listFigures prints names, differences and times.
func listFigures(w io.Writer, list []paper.Figure, o paper.Options) error {
	t := tables.Left()
	total := time.Duration(0)
	for _, f := range list {
		takes := f.Takes(o)
		total += takes
		t.Addf("%s\t%s\t%s", f.Name, farmrun.Left(takes+time.Second/2), f.Shows)
		if f.Differs != "" {
			t.Addf("\t\t  not as printed: %s", f.Differs)
		}
	}
	if err := t.Print(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nestimated time as min:s with %d seeds; %s for all of these\n", o.Seeds, farmrun.Left(total))
	return err
}
