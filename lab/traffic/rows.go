package traffic

import (
	"encoding/csv"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"proffer/lab/tables"
)

// column is one field of the raw rows: its name, with its unit, and how it is
// written and read. Times are seconds with nine digits, thus exact.
type column struct {
	name  string
	write func(r *Row) string
	read  func(r *Row, text string) error
}

// columns is the file from left to right.
func columns() []column {
	return []column{
		integer("id", func(r *Row) *int { return &r.ID }),
		{"client", writeClient, readClient},
		seconds("intended_s", func(r *Row) *time.Duration { return &r.Intended }),
		seconds("service_s", func(r *Row) *time.Duration { return &r.Service }),
		seconds("started_s", func(r *Row) *time.Duration { return &r.Started }),
		seconds("connected_s", func(r *Row) *time.Duration { return &r.Connected }),
		seconds("done_s", func(r *Row) *time.Duration { return &r.Done }),
		{"latency_s", func(r *Row) string { return formatSeconds(r.Latency()) }, readNothing},
		text("outcome", func(r *Row) *Outcome { return &r.Outcome }),
		text("server", func(r *Row) *string { return &r.Server }),
		integer("hops", func(r *Row) *int { return &r.Hops }),
		text("lb", func(r *Row) *string { return &r.LB }),
		integer("syn_retransmits", func(r *Row) *int { return &r.SYNRetransmits }),
		text("cause", func(r *Row) *string { return &r.Cause }),
	}
}

// table has the rows under the columns.
func table(rows []Row) *tables.Table {
	columns := columns()
	t := tables.New(names(columns)...)
	for _, row := range rows {
		cells := make([]any, len(columns))
		for i, c := range columns {
			cells[i] = c.write(&row)
		}
		t.Add(cells...)
	}
	return t
}

// File is the rows as a CSV file of a name.
func File(name string, rows []Row) tables.File { return table(rows).CSVFile(name) }

// ReadRows reads what File writes.
func ReadRows(r io.Reader) ([]Row, error) {
	file, columns := csv.NewReader(r), columns()
	file.FieldsPerRecord = len(columns)
	header, err := file.Read()
	if err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	if want := names(columns); !slices.Equal(header, want) {
		return nil, fmt.Errorf("read rows: the columns are %v, want %v", header, want)
	}
	var rows []Row
	for {
		record, err := file.Read()
		if err == io.EOF {
			return rows, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read rows: %w", err)
		}
		row, err := parseRow(columns, record)
		if err != nil {
			line, _ := file.FieldPos(0)
			return nil, fmt.Errorf("read rows: line %d: %w", line, err)
		}
		rows = append(rows, row)
	}
}

func parseRow(columns []column, record []string) (Row, error) {
	var row Row
	for i, c := range columns {
		if err := c.read(&row, record[i]); err != nil {
			return Row{}, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return row, nil
}

func names(columns []column) []string {
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
	}
	return names
}

func seconds(name string, field func(*Row) *time.Duration) column {
	return column{name,
		func(r *Row) string { return formatSeconds(*field(r)) },
		func(r *Row, text string) (err error) {
			// "0.020000000s" is a Go duration, parsed without a float between.
			*field(r), err = time.ParseDuration(text + "s")
			return err
		},
	}
}

// formatSeconds is exact: a float64 has 15 digits, a run of a day needs 14.
func formatSeconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', 9, 64)
}

func integer(name string, field func(*Row) *int) column {
	return column{name,
		func(r *Row) string { return strconv.Itoa(*field(r)) },
		func(r *Row, text string) (err error) {
			*field(r), err = strconv.Atoi(text)
			return err
		},
	}
}

func text[T ~string](name string, field func(*Row) *T) column {
	return column{name,
		func(r *Row) string { return string(*field(r)) },
		func(r *Row, text string) error { *field(r) = T(text); return nil },
	}
}

// The address of a client is unknown if the kernel chose it.
func writeClient(r *Row) string {
	if !r.From.IsValid() {
		return ""
	}
	return r.From.String()
}

func readClient(r *Row, text string) (err error) {
	if text != "" {
		r.From, err = netip.ParseAddrPort(text)
	}
	return err
}

// latency_s follows from done_s and intended_s; it is written for other tools.
func readNothing(*Row, string) error { return nil }
