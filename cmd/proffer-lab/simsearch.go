package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/lab/farmrun"
	"proffer/lab/study"
)

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
