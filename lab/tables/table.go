// Package tables has the laboratory's table: rows under columns, which print aligned, and go into files
// as CSV and JSON.
package tables

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"proffer/lab/stats"
)

// Table is rows under columns.
type Table struct {
	columns []string
	rows    [][]any
	source  any // what JSON writes; nil: nothing
	flags   uint
}

// New is a table without rows. Printed, its columns are flush right.
func New(columns ...string) *Table { return &Table{columns: columns, flags: tabwriter.AlignRight} }

// Left is New with columns that are printed flush left.
func Left(columns ...string) *Table { return &Table{columns: columns} }

// Fixed is a number that CSV and print show with so many digits behind the point.
type Fixed struct {
	float64
	digits int
}

// Digits is x as a Fixed.
func Digits(x float64, digits int) Fixed { return Fixed{x, digits} }

// Of is a table of a slice of structs. Its columns are the fields that have a name in JSON and are no
// slices; a field with omitempty is a column if any row states it. The tag `digits` bounds what CSV
// has of a number.
func Of[T any](of []T) *Table {
	t := New()
	t.source = of
	t.rows = make([][]any, len(of))
	typ := reflect.TypeFor[T]()
	for i := range typ.NumField() {
		field := typ.Field(i)
		name, option, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" || field.Type.Kind() == reflect.Slice || option != "" && !stated(of, i) {
			continue
		}
		t.columns = append(t.columns, name)
		digits, err := strconv.Atoi(field.Tag.Get("digits"))
		for k := range of {
			cell := reflect.ValueOf(of[k]).Field(i).Interface()
			if x, is := cell.(float64); is && err == nil {
				cell = Digits(x, digits)
			}
			t.rows[k] = append(t.rows[k], cell)
		}
	}
	return t
}

// stated is true if any row has the field, which may be left out.
func stated[T any](of []T, field int) bool {
	for _, row := range of {
		if !reflect.ValueOf(row).Field(field).IsZero() {
			return true
		}
	}
	return false
}

// From has JSON write this value.
func (t *Table) From(value any) *Table {
	t.source = value
	return t
}

// Add adds a row; columns without a cell are empty.
func (t *Table) Add(cells ...any) { t.rows = append(t.rows, cells) }

// Empty is true of a table without rows.
func (t *Table) Empty() bool { return len(t.rows) == 0 }

// Addf adds a row of a format with a tab between two cells.
func (t *Table) Addf(format string, args ...any) {
	var cells []any
	for text := range strings.SplitSeq(fmt.Sprintf(format, args...), "\t") {
		cells = append(cells, text)
	}
	t.Add(cells...)
}

// Widen adds columns, with each row's cells for them.
func (t *Table) Widen(columns []string, cells func(row int) []any) {
	t.columns = append(t.columns, columns...)
	for i := range t.rows {
		t.rows[i] = append(t.rows[i], cells(i)...)
	}
}

// texts is a row as CSV has it.
func (t *Table) texts(row []any) []string {
	texts := make([]string, len(t.columns))
	for i, cell := range row {
		texts[i] = text(cell)
	}
	return texts
}

func text(cell any) string {
	switch c := cell.(type) {
	case time.Duration: // seconds
		return strconv.FormatFloat(c.Seconds(), 'f', 6, 64)
	case Fixed:
		return number(c.float64, c.digits)
	case stats.Number:
		return number(float64(c), -1)
	case float64:
		return number(c, -1)
	default:
		return fmt.Sprint(c)
	}
}

// number is empty for a number that does not exist.
func number(x float64, digits int) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return ""
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}

// Print writes the columns and the rows for a reader. A Recording keeps them as they are.
func (t *Table) Print(w io.Writer) error {
	if r, is := w.(*Recording); is {
		r.keep(t)
		w = r.Writer
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', t.flags)
	end := "\n"
	if t.flags != 0 { // a column flush right ends with a tab
		end = "\t\n"
	}
	if len(t.columns) > 0 {
		fmt.Fprint(out, strings.Join(t.columns, "\t"), end)
	}
	for _, row := range t.rows {
		cells := make([]string, max(len(row), len(t.columns)))
		for i, cell := range row {
			cells[i] = text(cell)
		}
		fmt.Fprint(out, strings.Join(cells, "\t"), end)
	}
	return out.Flush()
}

// CSV writes the columns and the rows as CSV.
func (t *Table) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	if err := out.Write(t.columns); err != nil {
		return err
	}
	for _, row := range t.rows {
		if err := out.Write(t.texts(row)); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// JSON writes what the table was made of, with all that its columns leave out.
func (t *Table) JSON(w io.Writer) error {
	if t.source == nil {
		return errors.New("a table of texts has no JSON")
	}
	return JSON(w, t.source)
}
