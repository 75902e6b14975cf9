package loads

import (
	"fmt"
	"io"
	"slices"

	"proffer/lab/tables"
	"proffer/topo"
)

// Print writes the table.
func (r *Report) Print(w io.Writer) error {
	e := r.experiment
	fmt.Fprintf(w, "Signals beside the requests in progress; %v clients, %v each; %d idle connections; seed %d\n\n", levels, e.each(), e.Idle, e.Seed)
	t := tables.Left("program", "requests", "mean", "signal", "idle", "bias", "requests", "r", "worst", "read 0")
	for i, result := range r.results {
		if i > 0 && result.program != r.results[i-1].program {
			t.Add() // a line without text, which keeps the columns
		}
		result.print(t)
	}
	if err := t.Print(w); err != nil {
		return err
	}
	for i, note := range r.notes() {
		if i == 0 {
			fmt.Fprintln(w, "\nExceptions:")
		}
		fmt.Fprintln(w, note)
	}
	if r.asked() {
		fmt.Fprintln(w, "\n"+askedWords)
	}
	return nil
}

// print writes the lines of a program and a kind of requests.
func (r *result) print(t *tables.Table) {
	for i, row := range r.rows {
		head, e := "\t\t", r.errors[i]
		if i == 0 {
			head = fmt.Sprintf("%s\t%s\t%.1f", row.Program, row.Requests, e.mean)
		}
		t.Addf("%s\t%s\t%.1f\t%+.0f %%\t%+.1f\t%.2f\t%.0f\t%.1f %%\t%s", head, row.Signal, row.Idle,
			100*row.Bias, row.Over, row.R, e.worst, 100*e.missed, r.mark(i))
	}
}

// notes are the reasons of the exceptions, a program each.
func (r *Report) notes() (notes []string) {
	for _, result := range r.results {
		if why := result.program.Exceptions[result.kind]; why != "" {
			if cure := result.program.Cure; cure != "" {
				why += "; as " + cure + " they are"
			}
			notes = append(notes, fmt.Sprintf("%s: %s", result.program.Name, why))
		}
	}
	return slices.Compact(notes)
}

// askedWords is the note of words that the agent asks for.
const askedWords = `nginx, apache, php-fpm: read as often as the agent does at a hundred offers a second, every 10 ms and
more at a scoreboard, every 50 ms and more by a request, and later where the answer takes long. Requests
that begin and end in between are not in them, which costs correlation.`

// asked reports whether there are such words.
func (r *Report) asked() bool {
	return slices.ContainsFunc(r.results, func(of *result) bool {
		own := of.rows[of.own()].Signal
		return slices.ContainsFunc(topo.Sources(), func(s topo.Source) bool { return s.String() == own && !s.Row().File })
	})
}
