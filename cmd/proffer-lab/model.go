package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"proffer/cmd/internal/cli"
	"proffer/lab/queue"
	"proffer/lab/tables"
	"proffer/policy"
	"proffer/topo"
)

// modelFlags are the model's flags before they are checked.
type modelFlags struct {
	policies []string
	rhos     []float64
	delay    float64
	slas     []string
	servers  int
	json     bool
	kept
}

// modelRow is a policy at one load, as --json prints it. Times are in units of
// the mean service time.
type modelRow struct {
	Policy   string      `json:"policy"`
	Rho      float64     `json:"rho"`
	Delay    float64     `json:"delay,omitempty"`
	Mean     float64     `json:"mean"`
	P50      float64     `json:"p50"`
	P90      float64     `json:"p90"`
	P99      float64     `json:"p99"`
	Fairness float64     `json:"fairness"`
	Wrongful float64     `json:"wrongful"`
	Servers  int         `json:"servers,omitempty"` // keep every promise
	SLA      []slaAnswer `json:"sla,omitempty"`
}

// slaAnswer is the answer to one promise.
type slaAnswer struct {
	Percentile float64 `json:"percentile"`
	Time       float64 `json:"time"`
	RhoMax     float64 `json:"rho_max"`
	Servers    int     `json:"servers"`
}

func newModel() *cobra.Command {
	f := &modelFlags{}
	cmd := &cobra.Command{
		Use:   "model --rho LIST [--policy LIST] [--sla P:T]",
		Short: "Compute response times and farm sizes from the analytic model",
		Long: `Solves the queueing model of the 6LB paper (its section V): many servers, one
core each, first come first served, Poisson arrivals, exponential service. Times
are in units of the mean service time.

Policies: single, hunt:always, hunt:static:C. hunt:dynamic has no closed form.

--json prints one object: policy, rho, mean, p50, p90, p99, fairness, wrongful
(share of flows passed on to a busier server); with --delay also delay; with
--sla also servers, and in sla for each promise percentile, time, rho_max,
servers. Several policies or loads make an array of such objects. docs/design/model.md
explains the model and its limits.`,
		Example: `  proffer-lab model --policy single,hunt:static:4 --rho 0.5,0.87
  proffer-lab model --policy hunt:static:4 --rho 0.61 --sla 90:6 --json`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runModel(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.policies, "policy", []string{"hunt:static:4"}, "policies, `LIST` with commas")
	flags.Float64SliceVar(&f.rhos, "rho", nil, "loads of a server, `LIST` with commas, each 0 < ρ < 1")
	flags.Float64Var(&f.delay, "delay", 0, "the cost of passing on a flow, `D` mean service times")
	flags.StringArrayVar(&f.slas, "sla", nil, "how many servers answer P per cent within T mean service times, `P:T`; may be repeated")
	flags.IntVar(&f.servers, "servers", 100, "servers that have the load --rho now, `N`, for --sla")
	f.flag(flags)
	flags.BoolVar(&f.json, "json", false, "print JSON instead of the table")
	return cmd
}

// runModel has only the user's own numbers to fail on.
func runModel(cmd *cobra.Command, f *modelFlags) error {
	rows, err := f.rows()
	if err == nil {
		err = f.open()
	}
	if err != nil {
		return cli.BadUsage(err)
	}
	w := cmd.OutOrStdout()
	record := tables.Record(w)
	if f.json {
		record.Writer = io.Discard
	}
	err = errors.Join(printModel(record, rows, f.servers), f.keep(cmd, []string{"./lab/queue"}, record.Parts(), nil))
	if !f.json || err != nil {
		return err
	}
	if len(rows) == 1 {
		return tables.JSON(w, rows[0])
	}
	return tables.JSON(w, rows)
}

func (f *modelFlags) rows() ([]modelRow, error) {
	switch {
	case len(f.rhos) == 0:
		return nil, errors.New("--rho is missing: the load of a server, more than 0 and less than 1")
	case len(f.policies) == 0:
		return nil, errors.New("--policy: name at least one")
	case !(f.delay >= 0 && f.delay <= 1e6):
		return nil, fmt.Errorf("--delay %v: want 0 to 1e6 mean service times", f.delay)
	case f.servers < 1 || f.servers > 1_000_000:
		return nil, fmt.Errorf("--servers %d: want 1 to 1000000", f.servers)
	}
	var rows []modelRow
	for _, spelt := range f.policies {
		p, err := modelPolicy(spelt)
		if err != nil {
			return nil, fmt.Errorf("--policy: %w", err)
		}
		for _, rho := range f.rhos {
			row, err := f.row(p, rho)
			if err != nil {
				return nil, err
			}
			row.Policy = spelt
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// modelPolicy finds the model of a policy.
func modelPolicy(spelt string) (queue.Policy, error) {
	p, err := policy.Parse(spelt)
	switch {
	case err != nil:
		return 0, err
	case p.Dispatch == topo.Single, p.Dispatch == topo.Hunt && p.Acceptance == topo.Always:
		return queue.Single, nil
	case p.Dispatch == topo.Hunt && p.Acceptance == topo.Static:
		return queue.Policy(p.Threshold), nil
	default:
		return 0, fmt.Errorf("%s has no closed form: ask for single or hunt:static:C", p)
	}
}

func (f *modelFlags) row(p queue.Policy, rho float64) (modelRow, error) {
	if !(rho > 0 && rho < 1) {
		return modelRow{}, fmt.Errorf("--rho %v: want more than 0 and less than 1; at 1 and above queues grow without end", rho)
	}
	m, err := queue.Solve(p, rho, f.delay)
	if err != nil {
		return modelRow{}, err
	}
	row := modelRow{
		Rho: rho, Delay: f.delay, Mean: m.Mean(),
		P50: m.Percentile(50), P90: m.Percentile(90), P99: m.Percentile(99),
		Fairness: m.Fairness(), Wrongful: m.Wrongful(),
	}
	for _, spelt := range f.slas {
		answer, err := f.answer(p, rho, spelt)
		if err != nil {
			return modelRow{}, fmt.Errorf("--sla %s: %w", spelt, err)
		}
		row.SLA = append(row.SLA, answer)
		row.Servers = max(row.Servers, answer.Servers)
	}
	return row, nil
}

func (f *modelFlags) answer(p queue.Policy, rho float64, spelt string) (slaAnswer, error) {
	sla, err := parseSLA(spelt)
	if err != nil {
		return slaAnswer{}, err
	}
	load, err := queue.MaxLoad(p, sla, f.delay)
	if err != nil {
		return slaAnswer{}, err
	}
	servers, err := queue.Servers(p, rho*float64(f.servers), sla, f.delay)
	return slaAnswer{sla.Percentile, sla.Time, load, servers}, err
}

// parseSLA reads P:T.
func parseSLA(s string) (queue.SLA, error) {
	percent, within, ok := strings.Cut(s, ":")
	p, errP := strconv.ParseFloat(percent, 64)
	t, errT := strconv.ParseFloat(within, 64)
	if !ok || errP != nil || errT != nil {
		return queue.SLA{}, errors.New("want P:T, as 90:6 for 90 per cent within 6 mean service times")
	}
	return queue.SLA{Percentile: p, Time: t}, nil
}

// printModel writes the rows for a reader.
func printModel(w io.Writer, rows []modelRow, servers int) error {
	fmt.Fprint(w, "times in units of the mean service time\n\n")
	t := tables.Left("policy", "ρ", "mean", "p50", "p90", "p99", "fairness", "wrongful")
	promises := tables.Left("policy", "ρ", "promise", "ρ then", "servers")
	for _, r := range rows {
		t.Addf("%s\t%v\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.2f %%",
			r.Policy, r.Rho, r.Mean, r.P50, r.P90, r.P99, r.Fairness, 100*r.Wrongful)
		for _, a := range r.SLA {
			promises.Addf("%s\t%v\t%v %% within %v\t%.4f\t%d", r.Policy, r.Rho, a.Percentile, a.Time, a.RhoMax, a.Servers)
		}
	}
	if err := t.Print(w); err != nil || promises.Empty() {
		return err
	}
	fmt.Fprintf(w, "\nservers needed for the load of %d at ρ:\n\n", servers)
	return promises.Print(w)
}
