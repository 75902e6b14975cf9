package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/tables"
)

// Builds measures the same rows by two builds of proffer-lab, in turns on the same CPU.
// Either build's bench is a process of its own, with the programs that it holds.
type Builds struct {
	*Bench
	Other, This string // binaries
}

// rounds is how often either build has its turn.
const rounds = 4

// BuildsReport holds the rows that both builds have.
type BuildsReport struct {
	Rows []BuildsRow

	alone []string // rows of one build only
}

// BuildsRow is a row: the least of all rounds, of either build.
type BuildsRow struct {
	Program  string  `json:"program"`
	Mode     string  `json:"mode"`
	Case     string  `json:"case"`
	Flows    int     `json:"flows"`
	OtherMin float64 `json:"other_min_ns"`
	Min      float64 `json:"min_ns"`
	Ratio    float64 `json:"ratio"` // Min over OtherMin
	OtherNet float64 `json:"other_net_ns"`
	Net      float64 `json:"net_ns"`
	NetRatio float64 `json:"net_ratio"` // Net over OtherNet
}

// Run measures. A build that finds the CPU too busy has measured nevertheless: note gets that.
func (b *Builds) Run(ctx context.Context, show func(farmrun.Step), note func(string)) (*BuildsReport, error) {
	builds := []string{b.Other, b.This}
	found := make([][]Result, len(builds))
	p := farmrun.Pace{Began: time.Now(), Total: rounds * len(builds), Guess: 30 * time.Second, Show: show}
	for round := range rounds {
		for i, binary := range builds {
			doing := fmt.Sprintf("%s, round %d", binary, round+1)
			p.Begin(doing)
			rows, err := b.rows(ctx, binary, note)
			if err != nil {
				return nil, err
			}
			found[i] = append(found[i], rows...)
			p.End(doing)
		}
	}
	return newBuildsReport(found[0], found[1])
}

// rows are those that a build's bench prints. Older builds know the same flags and fields.
func (b *Builds) rows(ctx context.Context, binary string, note func(string)) (rows []Result, err error) {
	args := []string{"bench", "--json", "--cpu", strconv.Itoa(b.CPU), "--runs", strconv.Itoa((b.Turns + rounds - 1) / rounds)}
	var flows []string
	for _, n := range b.Flows {
		flows = append(flows, strconv.Itoa(n))
	}
	args = append(args, "--flows", strings.Join(flows, ","))
	if b.Rows != nil {
		args = append(args, "--rows", b.Rows.String())
	}
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes the things that it made
	cmd.Stdout, cmd.Stderr = &out, &complaint
	failed := cmd.Run()
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil || len(rows) == 0 {
		return nil, fmt.Errorf("%s %s: %w: %s", binary, strings.Join(args, " "), cmp.Or(failed, err, errors.New("no rows")), last(complaint.String()))
	}
	if failed != nil {
		note(fmt.Sprintf("%s: %s", binary, last(complaint.String())))
	}
	return rows, nil
}

// last is the last line of a text.
func last(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// newBuildsReport condenses the rows of all rounds.
func newBuildsReport(other, this []Result) (*BuildsReport, error) {
	was, names := leastRows(other)
	now, more := leastRows(this)
	r := &BuildsReport{}
	for _, name := range names {
		if _, both := now[name]; !both {
			r.alone = append(r.alone, name)
		}
	}
	for _, name := range more {
		a, both := was[name]
		if !both {
			r.alone = append(r.alone, name)
			continue
		}
		b := now[name]
		r.Rows = append(r.Rows, BuildsRow{
			Program: b.Program, Mode: b.Mode, Case: b.Case, Flows: b.Flows,
			OtherMin: a.Min, Min: b.Min, Ratio: b.Min / a.Min,
			OtherNet: a.Net, Net: b.Net, NetRatio: b.Net / max(a.Net, leastNet),
		})
	}
	if len(r.Rows) == 0 {
		return nil, errors.New("the two builds have no row in common")
	}
	return r, nil
}

// leastRows are the least times of each row, and the rows' names in their order.
func leastRows(rows []Result) (least map[string]Result, names []string) {
	least = map[string]Result{}
	for _, row := range rows {
		best, seen := least[row.Name()]
		if !seen {
			best = row
			names = append(names, row.Name())
		}
		best.Min, best.Net = min(best.Min, row.Min), min(best.Net, row.Net)
		least[row.Name()] = best
	}
	return least, slices.Clip(names)
}

// JSON is the array of rows.
func (r *BuildsReport) JSON() any { return r.Rows }

// Files are none: there is no figure.
func (r *BuildsReport) Files() []tables.File { return nil }

// Holds has no verdict: the ratios are for the reader.
func (r *BuildsReport) Holds() error { return nil }

// Print writes the rows.
func (r *BuildsReport) Print(w io.Writer) error {
	t := tables.Left("program", "mode", "case", "flows", "other min ns", "min ns", "×", "other net", "net", "×")
	for _, row := range r.Rows {
		t.Addf("%s\t%s\t%s\t%d\t%.0f\t%.0f\t%.2f\t%.0f\t%.0f\t%.2f", row.Program, row.Mode, row.Case, row.Flows,
			row.OtherMin, row.Min, row.Ratio, row.OtherNet, row.Net, row.NetRatio)
	}
	if err := t.Print(w); err != nil || len(r.alone) == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "rows of one build only: %s\n", strings.Join(r.alone, " "))
	return err
}
