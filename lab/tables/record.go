package tables

import (
	"io"
	"regexp"
	"strings"
)

// Recording is a writer that keeps the tables that are printed to it, and the text around them.
type Recording struct {
	io.Writer
	text  strings.Builder // since the last table
	parts []Part
}

// Part is a table of a result, with the text before it.
type Part struct {
	Text    string   `json:"text,omitempty"`
	Columns []Column `json:"columns,omitempty"`
	Rows    [][]any  `json:"rows,omitempty"` // a json.Number, or a string
}

// Column is a heading and the unit of all numbers below it.
type Column struct {
	Name string `json:"name"`
	Unit string `json:"unit,omitempty"`
}

// Record is a recording of what goes to w.
func Record(w io.Writer) *Recording { return &Recording{Writer: w} }

func (r *Recording) Write(text []byte) (int, error) {
	r.text.Write(text)
	return r.Writer.Write(text)
}

// keep ends the text before a table.
func (r *Recording) keep(t *Table) {
	p := Part{Text: strings.Trim(r.text.String(), "\n")}
	r.text.Reset()
	columns, rows := t.columns, t.rows
	if len(columns) == 0 && len(rows) > 0 { // the headings are its first row
		for _, cell := range rows[0] {
			columns = append(columns, text(cell))
		}
		rows = rows[1:]
	}
	for _, name := range columns {
		p.Columns = append(p.Columns, Column{Name: strings.TrimSpace(name)})
	}
	for _, row := range rows {
		cells, all := make([]any, len(row)), ""
		for i, cell := range row {
			cells[i] = strings.TrimSpace(text(cell))
			all += cells[i].(string)
		}
		if all != "" { // an empty row is a gap
			p.Rows = append(p.Rows, cells)
		}
	}
	p.units()
	r.parts = append(r.parts, p)
}

// Parts are the tables so far, and the text behind them.
func (r *Recording) Parts() []Part {
	parts := r.parts
	if end := strings.Trim(r.text.String(), "\n"); end != "" {
		parts = append(parts[:len(parts):len(parts)], Part{Text: end})
	}
	return parts
}

var (
	// named is the unit in a heading, as in "p50 µs".
	named = regexp.MustCompile(`^(.+) (ns|µs|ms|s|µs/\S+|s/GB\b.*|Gbit/s)$`)
	// follows is a heading that has the unit of the column before it, as p99 behind p50 µs.
	follows = regexp.MustCompile(`^(p[0-9.]+|±.*|mean|SD|net|median|spread)$`)
	// measured is a number with its unit.
	measured = regexp.MustCompile(`^([+-]?[0-9.]+) ?(%|ns|µs|ms|s|B|×|/s)$`)
)

// units moves units from headings, and from cells that all have the same, to the columns.
func (p *Part) units() {
	unit := "" // of the last heading with a unit
	for i := range p.Columns {
		c := &p.Columns[i]
		if m := named.FindStringSubmatch(c.Name); m != nil {
			c.Name, c.Unit, unit = m[1], m[2], m[2]
			continue
		}
		if c.Unit = p.common(i); c.Unit == "" && follows.MatchString(c.Name) {
			c.Unit = unit
		} else {
			unit = ""
		}
	}
}

// common is the unit of all cells of a column, which it takes from them; empty: they have no unit, or several.
func (p *Part) common(column int) (unit string) {
	bare := map[int]string{}
	for k, row := range p.Rows {
		if column >= len(row) || row[column] == "" || row[column] == "–" {
			continue
		}
		m := measured.FindStringSubmatch(row[column].(string))
		if m == nil || unit != "" && m[2] != unit {
			return ""
		}
		unit, bare[k] = m[2], m[1]
	}
	for k, number := range bare {
		p.Rows[k][column] = number
	}
	return unit
}
