package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/lab/farm"
	"proffer/lab/farmrun"
	"proffer/lab/sim"
	"proffer/lab/study"
	"proffer/lab/tables"
	"proffer/lab/trace"
)

// simFlags are the simulator's flags before they are checked.
type simFlags struct {
	farm     string
	policies []string
	rhos     []float64
	seeds    int
	requests int
	bounded  bool
	json     bool
	csv      bool
	out      string
	first    uint64
	list     bool
	example  bool
	schema   bool

	percentiles []float64
	groups      bool
	servers     bool
	cdf, log    string // files

	search, until string

	kept

	simFarm
}

func newSim() *cobra.Command {
	f := &simFlags{}
	cmd := &cobra.Command{
		Use:   "sim [--farm A|B|FILE.yaml] [--policies LIST] [--rho LIST]",
		Short: "Simulate a farm: which policy, how many servers, which p99",
		Long: `Runs a farm in virtual time under each policy, at each load, with several seeds,
on all cores. Every policy meets the same requests; the same seed gives the same
result on any machine. Ctrl-C prints and writes the rows that are complete.

Farms: A (6LB), B, B:c1:K, B:v1:K, B:hom (HLB), or a file. --list explains farms
and policies; --example prints a farm file with comments.

--json prints an array of rows: policy, farm, rho, seeds, mean_ms, mean_ci_ms,
p50_ms, p90_ms, p90_ci_ms, p99_ms, refused, hops, events, events_per_s. Means and
percentiles are means over the seeds of those of each run, a ci is half the 95 %
Student interval over seeds, null with one seed. refused and events are sums over
all runs; hops is how many servers a request visited, on average; events_per_s is
per core. With --bounded a row of too much load also has bounded: true; unsettled: true
marks a row of a run that was too short, or counts from too early on (! in the table), and
unjudged is the reason why that is not known (?).
--percentiles and --groups add percentiles (percentile, ms, ci_ms) and groups (group,
servers, utilisation, served, refused); --per-server adds per_server (server, group,
accepted, passed_on, refused, share, mean_ms). Where servers or LBs fail, rows have lost,
reset and recovered (of all requests in all runs).

With --search --json prints an array of policy, farm, rho, seeds, goal, servers (the
fewest that reach it), servers_low and servers_high (the fewest by the ends of the
interval; 0: none) and tried (servers, rho, ms, ci_ms, refused).
docs/design/simulator.md explains the model.`,
		Example: `  proffer-lab sim --farm B --policies learned,guided,jsq --rho 0.9,0.95
  proffer-lab sim --search servers --until 'p99<=500' --policies single,guided --rho 0.71
  proffer-lab sim --example > farm.yaml && proffer-lab sim --farm farm.yaml --json`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSim(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.farm, "farm", "A", "`FARM` by name, or a farm file")
	flags.StringSliceVar(&f.policies, "policies", []string{"single", "rr", "hunt:static:4", "hunt:dynamic", "guided", "jsq"}, "policies to compare, `LIST` with commas, or all")
	flags.Float64SliceVar(&f.rhos, "rho", nil, "loads, shares of the farm's capacity, `LIST` with commas (default: the farm file's, else 0.88)")
	flags.IntVar(&f.seeds, "seeds", 10, "runs of each policy at each load, with `N` seeds from --first-seed on")
	flags.Uint64Var(&f.first, "first-seed", 1, "the first seed, `N`; --seeds is their number")
	flags.IntVar(&f.requests, "requests", 0, "requests a run, `N` (default: the farm's, 80000)")
	flags.BoolVar(&f.bounded, "bounded", false, "also run loads that the farm cannot serve, for as long as the requests last")
	flags.BoolVar(&f.json, "json", false, "print a JSON array instead of the table")
	flags.BoolVar(&f.csv, "csv", false, "print CSV instead of the table")
	f.flag(flags)
	flags.StringVar(&f.out, "out", "", "write rows.json and rows.csv into `DIR`")
	flags.Float64SliceVar(&f.percentiles, "percentiles", nil, "more percentiles, such as 50,99.9: `LIST` with commas")
	flags.BoolVar(&f.groups, "groups", false, "also utilisation and refusals of each group of servers")
	flags.BoolVar(&f.servers, "per-server", false, "also the requests that each server accepted, passed on and refused, its share and mean time")
	f.simFarm.add(flags)
	flags.StringVar(&f.cdf, "cdf", "", "write the distribution of the response times as CSV into `FILE`")
	flags.StringVar(&f.log, "request-log", "", "write a line for each request of each run as CSV into `FILE`")
	flags.StringVar(&f.search, "search", "", "find the fewest `servers` that reach the goal of --until, for each policy")
	flags.StringVar(&f.until, "until", "", "`GOAL` of --search: mean or a percentile, in ms or with a unit, such as 'p99<=500'")
	flags.BoolVar(&f.list, "list", false, "print the farms and policies there are")
	flags.BoolVar(&f.example, "example", false, "print a farm file with comments")
	flags.BoolVar(&f.schema, "schema", false, "print the JSON Schema of a farm file")
	return cmd
}

func runSim(cmd *cobra.Command, f *simFlags) error {
	switch {
	case f.list:
		return listSim(cmd.OutOrStdout())
	case f.schema:
		_, err := cmd.OutOrStdout().Write(farm.Schema())
		return err
	case f.example:
		_, err := cmd.OutOrStdout().Write(farm.Example)
		return err
	}
	s, err := f.study(cmd)
	if err != nil {
		return err
	}
	if err := f.open(); err != nil {
		return cli.BadUsage(err)
	}
	if f.search != "" {
		return f.runSearch(cmd, s)
	}
	if f.out != "" {
		if err := writable(f.out); err != nil {
			return err
		}
	}
	files, err := f.files(s)
	defer files.discard()
	if err != nil {
		return err
	}
	show := newProgress(cmd.ErrOrStderr())
	rows, err := s.Run(cmd.Context(), func(p study.Progress) { show.update(simLine(p)) })
	show.end()
	if cut := (*study.Interrupted)(nil); err != nil && !errors.As(err, &cut) {
		return err
	}
	if err == nil {
		err = files.keep(cmd.ErrOrStderr(), rows)
	}
	return errors.Join(f.show(cmd, study.Table(rows), func(w io.Writer) error { return s.Print(w, rows) }, err), f.save(cmd.ErrOrStderr(), rows), err)
}

// simLine is the line of progress, and whether it is the last.
func simLine(p study.Progress) (string, bool) {
	switch {
	case p.Done == p.Total:
		return fmt.Sprintf("%d of %d runs, %s left", p.Done, p.Total, farmrun.Left(p.Left)), true
	case float64(p.Done)+p.Part == 0:
		return fmt.Sprintf("0 of %d runs", p.Total), false
	}
	return fmt.Sprintf("%.1f of %d runs, %s left", float64(p.Done)+p.Part, p.Total, farmrun.Left(p.Left)), false
}

// study is the work that the flags ask for, checked before anything runs.
func (f *simFlags) study(cmd *cobra.Command) (*study.Study, error) {
	policies, err := f.parsePolicies()
	switch {
	case err != nil:
		return nil, cli.BadUsage(err)
	case f.seeds < 1 || f.seeds > maxSeeds:
		return nil, cli.BadUsagef("--seeds %d: want 1 to %d", f.seeds, maxSeeds)
	case f.first < 1 || f.first > maxFirstSeed:
		return nil, cli.BadUsagef("--first-seed %d: want 1 to %d", f.first, uint64(maxFirstSeed))
	case f.json && f.csv:
		return nil, cli.BadUsage(errors.New("--json and --csv: want one of them"))
	}
	if err := errors.Join(f.checkOutput(), f.checkSearch()); err != nil {
		return nil, err
	}
	file, setting, err := f.setting()
	if err != nil {
		return nil, err
	}
	if cmd.Flags().Changed("requests") {
		if err := setting.SetRequests(f.requests); err != nil {
			return nil, cli.BadUsagef("--requests %d: %w", f.requests, err)
		}
	}
	if err := f.apply(cmd.Flags(), setting); err != nil {
		return nil, err
	}
	loads, err := f.loads(file, setting)
	if err != nil {
		return nil, err
	}
	for _, load := range loads {
		if err := load.Reaches(); err != nil {
			return nil, cli.BadUsagef("--count-from: %w", err)
		}
	}
	s := &study.Study{Setting: setting, Policies: policies, Loads: loads, Seeds: f.seeds,
		First: f.first, Percentiles: f.percentiles, Groups: f.groups, Servers: f.servers, CDF: f.cdf != ""}
	if err := s.Check(); err != nil {
		return nil, cli.BadUsagef("--policies: %w", err)
	}
	return s, nil
}

const (
	maxSeeds     = 100_000
	maxFirstSeed = 1 << 32
)

func (f *simFlags) parsePolicies() ([]sim.Policy, error) {
	names := f.policies
	if slices.Equal(names, []string{"all"}) {
		names = sim.Policies()
	}
	var policies []sim.Policy
	for i, name := range names {
		p, err := sim.ParsePolicy(name)
		if err != nil {
			return nil, fmt.Errorf("--policies: %w", err)
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("--policies: %s stands there twice", name)
		}
		policies = append(policies, p)
	}
	if len(policies) == 0 {
		return nil, errors.New("--policies: name at least one")
	}
	return policies, nil
}

// setting finds the farm; the file is nil for one that has a name.
func (f *simFlags) setting() (*farm.File, *study.Setting, error) {
	if !strings.ContainsAny(f.farm, "./") {
		setting, err := study.Named(f.farm)
		if err != nil {
			return nil, nil, cli.BadUsagef("--farm: %w", err)
		}
		return nil, setting, nil
	}
	data, err := os.ReadFile(f.farm)
	if err != nil {
		return nil, nil, fmt.Errorf("read farm: %w", err)
	}
	file, err := farm.Parse(f.farm, data)
	if err != nil {
		return nil, nil, err
	}
	setting, err := study.FromFile(file, f.readTrace)
	return file, setting, err
}

// readTrace opens a trace file beside the farm file.
func (f *simFlags) readTrace(path string) (*trace.File, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(f.farm), path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return trace.Read(path, file)
}

const defaultRho = 0.88

// loads are those of --rho, or the farm file's.
func (f *simFlags) loads(file *farm.File, s *study.Setting) ([]study.Load, error) {
	if len(f.rhos) > 0 && !s.Open() {
		return nil, cli.BadUsagef("--rho: %s itself states when requests come (arrivals.process: %s); leave --rho out", f.farm, file.Arrivals.Process)
	}
	if len(f.rhos) == 0 {
		load, stated, err := s.Stated()
		if stated {
			return f.stated(file, load, err)
		}
		f.rhos = []float64{defaultRho}
	}
	var loads []study.Load
	for i, rho := range f.rhos {
		switch {
		case !(rho > 0) || math.IsInf(rho, 1):
			return nil, cli.BadUsagef("--rho %v: want more than 0", rho)
		case slices.Contains(f.rhos[:i], rho):
			return nil, cli.BadUsagef("--rho: %v stands there twice", rho)
		}
		load, err := s.At(rho)
		if err == nil && load.Overload() && !f.bounded {
			err = endless(load)
		}
		if err != nil {
			return nil, cli.BadUsagef("--rho %v: %w", rho, err)
		}
		loads = append(loads, load)
	}
	return loads, nil
}

// stated names the place in the farm file that asks for too much.
func (f *simFlags) stated(file *farm.File, load study.Load, err error) ([]study.Load, error) {
	if err == nil && load.Overload() && !f.bounded {
		err = endless(load)
	}
	if err != nil {
		key := map[farm.Process]string{farm.Poisson: ".rate", farm.Stepped: ".steps", farm.Diurnal: ".high", farm.Recorded: ".file"}
		return nil, file.Mistake("arrivals"+key[file.Arrivals.Process], err.Error())
	}
	return []study.Load{load}, nil
}

func endless(l study.Load) error {
	asked := "all of the farm's capacity"
	if l.End > 1 {
		asked = fmt.Sprintf("%.4g times the farm's capacity", l.End)
	}
	return fmt.Errorf("asks for %s, so queues grow without end; add --bounded to run its %d requests all the same", asked, l.Work.Requests)
}

// show prints the rows as wanted, and keeps them if they are complete.
func (f *simFlags) show(cmd *cobra.Command, t *tables.Table, print func(io.Writer) error, incomplete error) (err error) {
	if t.Empty() && !f.json && !f.csv {
		return nil
	}
	w := cmd.OutOrStdout()
	record := tables.Record(w)
	switch {
	case f.json:
		err = t.JSON(w)
	case f.csv:
		err = t.CSV(w)
	default:
		err = print(record)
	}
	if f.path == "" || incomplete != nil {
		return err
	}
	if f.json || f.csv {
		record.Writer = io.Discard
		err = errors.Join(err, print(record))
	}
	return errors.Join(err, f.keep(cmd, []string{"./lab/study"}, record.Parts(), nil))
}

// save writes the rows into files and prints their names.
func (f *simFlags) save(log io.Writer, rows []study.Row) error {
	if f.out == "" {
		return nil
	}
	return saveFiles(log, f.out, tables.JSONFile("rows.json", rows), study.Table(rows).CSVFile("rows.csv"))
}

// listSim prints the farms and policies there are.
func listSim(w io.Writer) error {
	var b strings.Builder
	b.WriteString("farms (--farm), or a farm file (--example):\n")
	for _, farm := range study.Names() {
		fmt.Fprintf(&b, "  %-18s %s\n", farm[0], farm[1])
	}
	b.WriteString("\npolicies (--policies), or all, by what they see:\n")
	sees := ""
	for _, p := range sim.Spellings() {
		if s := sim.Sees(p.Name).String(); s != sees {
			sees = s
			fmt.Fprintf(&b, " %s\n", s)
		}
		fmt.Fprintf(&b, "  %-18s %s\n", p.Name, p.Means)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
