package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"proffer/cmd/internal/cli"
	"proffer/lab/farmrun"
	"proffer/lab/sim"
	"proffer/lab/study"
)

// simFiles are the CSV files that a simulation writes besides its rows. They
// appear under their names only when they are complete.
type simFiles struct{ cdf, log *draft }

// draft is a file that is not complete yet.
type draft struct {
	*os.File
	path string
}

func newDraft(path string) (*draft, error) {
	file, err := os.CreateTemp(filepath.Dir(path), ".proffer-*")
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return &draft{file, path}, nil
}

// discard removes files that were not kept.
func (d *draft) discard() {
	if d != nil {
		d.Close()
		os.Remove(d.Name())
	}
}

func (d *draft) keep() error {
	err := errors.Join(d.Chmod(0o644), d.Close())
	if err == nil {
		err = os.Rename(d.Name(), d.path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", d.path, err)
	}
	return nil
}

// files opens the files that the flags ask for, before anything runs, and lets
// the study write its log.
func (f *simFlags) files(s *study.Study) (files simFiles, err error) {
	if f.cdf != "" {
		if files.cdf, err = newDraft(f.cdf); err != nil {
			return files, err
		}
	}
	if f.log == "" {
		return files, nil
	}
	if files.log, err = newDraft(f.log); err != nil {
		return files, err
	}
	log, err := study.NewLog(files.log, s.Setting.Farm)
	s.Each = func(l study.Load, p sim.Policy, r sim.Result) error {
		if err := log.Add(l, p, r); err != nil {
			return fmt.Errorf("write %s: %w", f.log, err)
		}
		return nil
	}
	return files, err
}

func (files simFiles) discard() {
	files.cdf.discard()
	files.log.discard()
}

// keep completes the files and names them.
func (files simFiles) keep(log io.Writer, rows []study.Row) error {
	if files.cdf != nil {
		if err := study.CDF(rows).CSV(files.cdf); err != nil {
			return fmt.Errorf("write %s: %w", files.cdf.path, err)
		}
	}
	for _, d := range []*draft{files.cdf, files.log} {
		if d == nil {
			continue
		}
		if err := d.keep(); err != nil {
			return err
		}
		fmt.Fprintf(log, "written: %s\n", d.path)
	}
	return nil
}

// checkOutput refuses names that no file or column can be made of.
func (f *simFlags) checkOutput() error {
	for i, p := range f.percentiles {
		switch {
		case !(p > 0 && p <= 100):
			return cli.BadUsagef("--percentiles %v: want more than 0, at most 100", p)
		case slices.Contains(f.percentiles[:i], p):
			return cli.BadUsagef("--percentiles: %v stands there twice", p)
		}
	}
	if f.cdf != "" && filepath.Clean(f.cdf) == filepath.Clean(f.log) {
		return cli.BadUsagef("--cdf and --request-log: want two files, got %s for both", f.cdf)
	}
	return nil
}

// simFarm are the flags that change a farm, and which requests count.
type simFarm struct {
	lbs         int
	clientRTT   time.Duration
	synFlood    float64
	antagonists bool
	from, to    string
}

func (f *simFarm) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.lbs, "lbs", 0, "LBs, `N` (default: the farm's)")
	flags.DurationVar(&f.clientRTT, "client-rtt", 0, "a round trip of the clients on top of the hops, `TIME` (default: the farm's)")
	flags.Float64Var(&f.synFlood, "syn-flood", 0, "SYNs with forged sources, `TIMES` as many as requests (default: the farm's)")
	flags.BoolVar(&f.antagonists, "antagonists", false, "other work on every server, of a share that changes every 10 s: half the time 0, else .2 to .8")
	flags.StringVar(&f.from, "count-from", "", "where the requests that count begin, `WHERE` a share such as 0.25 or a time such as 30s (default: the farm's)")
	flags.StringVar(&f.to, "count-to", "", "and where they end, `WHERE`")
}

// The limits of a farm file.
const (
	maxLBs   = 1024
	maxRTT   = time.Hour
	maxFlood = 1000
)

// floodExpires is the life of an LB's entry for a SYN, as bpf/lb/flow_table.h has it.
const floodExpires = 10 * time.Second

// apply changes the farm by the flags that are given.
func (f *simFarm) apply(flags *pflag.FlagSet, s *study.Setting) error {
	farm := &s.Farm
	switch {
	case flags.Changed("lbs") && (f.lbs < 1 || f.lbs > maxLBs):
		return cli.BadUsagef("--lbs %d: want 1 to %d", f.lbs, maxLBs)
	case f.clientRTT < 0 || f.clientRTT > maxRTT:
		return cli.BadUsagef("--client-rtt %v: want 0s to %v", f.clientRTT, maxRTT)
	case !(f.synFlood >= 0 && f.synFlood <= maxFlood):
		return cli.BadUsagef("--syn-flood %v: want 0 to %v", f.synFlood, maxFlood)
	}
	if flags.Changed("lbs") {
		farm.LBs = f.lbs
	}
	if flags.Changed("client-rtt") {
		farm.ClientRTT = sim.Deterministic(f.clientRTT)
	}
	if flags.Changed("syn-flood") {
		farm.Flood = sim.Flood{Times: f.synFlood, Expires: floodExpires}
	}
	if flags.Changed("antagonists") {
		farm.Antagonists = sim.Antagonists{}
		if f.antagonists {
			farm.Antagonists = sim.Antagonists{Every: 10 * time.Second, Idle: 0.5, Least: 0.2, Most: 0.8}
		}
	}
	return f.window(flags, s)
}

// window sets which requests count.
func (f *simFarm) window(flags *pflag.FlagSet, s *study.Setting) error {
	bound := func(name, text string) (*study.Bound, error) {
		if !flags.Changed(name) {
			return nil, nil
		}
		b, err := study.ParseBound(text)
		if err != nil {
			return nil, cli.BadUsagef("--%s %q: %w", name, text, err)
		}
		return &b, nil
	}
	from, err := bound("count-from", f.from)
	if err != nil {
		return err
	}
	to, err := bound("count-to", f.to)
	if err != nil || from == nil && to == nil {
		return err
	}
	if err := s.Count(from, to); err != nil {
		return cli.BadUsagef("--count-from, --count-to: %w", err)
	}
	return nil
}

// checkSearch refuses flags that a search has no use for.
func (f *simFlags) checkSearch() error {
	if f.search == "" {
		if f.until != "" {
			return cli.BadUsagef("--until %s: goes with --search servers", f.until)
		}
		return nil
	}
	if f.search != "servers" {
		return cli.BadUsagef("--search %s: want servers", f.search)
	}
	if f.until == "" {
		return cli.BadUsagef("--search servers: --until is missing, such as --until 'p99<=500'")
	}
	for flag, given := range map[string]bool{
		"out": f.out != "", "cdf": f.cdf != "", "request-log": f.log != "", "groups": f.groups, "percentiles": len(f.percentiles) > 0,
	} {
		if given {
			return cli.BadUsagef("--search servers: goes without --%s", flag)
		}
	}
	return nil
}

// runSearch looks for servers instead of comparing policies.
func (f *simFlags) runSearch(cmd *cobra.Command, s *study.Study) error {
	goal, err := study.ParseGoal(f.until)
	if err != nil {
		return cli.BadUsagef("--until %w", err)
	}
	if len(s.Loads) > 1 {
		return cli.BadUsagef("--search servers: want one --rho, the load of the farm as it is; got %d", len(s.Loads))
	}
	search := &study.Search{Setting: s.Setting, Policies: s.Policies, Load: s.Loads[0], Goal: goal, Seeds: s.Seeds, First: s.First}
	if err := search.Check(); err != nil {
		return cli.BadUsagef("--search servers: %w", err)
	}
	show := newProgress(cmd.ErrOrStderr())
	found, err := search.Run(cmd.Context(), func(p study.SearchProgress) { show.update(searchLine(p), false) })
	show.end()
	if cut := (*study.Interrupted)(nil); err != nil && !errors.As(err, &cut) {
		return err
	}
	return errors.Join(f.show(cmd, study.FoundTable(found), func(w io.Writer) error { return search.Print(w, found) }, err), err)
}

func searchLine(p study.SearchProgress) string {
	return fmt.Sprintf("%s, policy %d of %d: %d servers, %.1f of %d runs; %s left", p.Policy, p.At, p.Of,
		p.Servers, float64(p.Done)+p.Part, p.Total, farmrun.Left(p.Left))
}
