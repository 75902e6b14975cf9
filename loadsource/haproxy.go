package loadsource

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"proffer/topo"
)

func openHAProxy(o *topo.Offering) (Source, error) {
	parse := func(answer []byte) (Reading, error) { return parseHAProxy(answer, o.Of) }
	if strings.HasPrefix(o.From, "http") {
		ask, release := overHTTP(asCSV(o.From))
		return answered{ask, parse, release}, nil
	}
	from := o.From
	ask := func(ctx context.Context) ([]byte, error) { return askHAProxy(ctx, from) }
	return answered{ask, parse, nil}, nil
}

// asCSV is the address of the statistics' page in the form of CSV.
func asCSV(page string) string {
	u, err := url.Parse(page)
	if err != nil || strings.Contains(u.Path, ";") {
		return page
	}
	u.Path = cmp.Or(u.Path, "/") + ";csv"
	return u.String()
}

// askHAProxy asks for the backends over the stats socket (HAProxy's management guide, 9.3): type
// 2, of every proxy.
func askHAProxy(ctx context.Context, from string) ([]byte, error) {
	conn, err := dial(ctx, from)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "show stat -1 2 -1\n"); err != nil {
		return nil, err
	}
	return bounded(conn)
}

// longestRow bounds a row of the statistics, which have some hundred columns.
const longestRow = 64 << 10

// firstColumn is the beginning of the head.
const firstColumn = "# pxname"

// parseHAProxy finds the sessions now (scur) of a backend, queue included, and their limit (slim).
func parseHAProxy(answer []byte, backend string) (Reading, error) {
	own, err := rowsOf(answer, backend)
	if err != nil {
		return Reading{}, err
	}
	rows := csv.NewReader(bytes.NewReader(own))
	rows.FieldsPerRecord, rows.LazyQuotes = -1, true
	head, err := rows.Read()
	if err != nil || len(head) == 0 || head[0] != firstColumn {
		return Reading{}, errors.New("the answer is not HAProxy's statistics")
	}
	rows.ReuseRecord = true
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return Reading{}, fmt.Errorf("HAProxy has no backend %q", backend)
		}
		if err != nil {
			return Reading{}, fmt.Errorf("HAProxy's statistics: %w", err)
		}
		field := func(name string) string {
			if i := slices.Index(head, name); 0 <= i && i < len(row) {
				return row[i]
			}
			return ""
		}
		if field(firstColumn) == backend && field("svname") == "BACKEND" {
			return sessions(field("scur"), field("slim"))
		}
	}
}

// rowsOf are the head of the statistics, and the rows of a backend.
func rowsOf(answer []byte, backend string) (rows []byte, err error) {
	for line := range bytes.Lines(answer) {
		if len(line) > longestRow {
			return nil, fmt.Errorf("HAProxy's statistics have a row of more than %d bytes", longestRow)
		}
		if len(rows) == 0 || bytes.HasPrefix(line, []byte(backend+",")) {
			rows = append(rows, line...)
		}
	}
	return rows, nil
}

func sessions(now, limit string) (Reading, error) {
	n, err := strconv.ParseFloat(now, 64)
	if err != nil {
		return Reading{}, errNoCount
	}
	busy, err := count(n)
	most, _ := strconv.ParseUint(limit, 10, 32) // empty without a limit
	return Reading{Busy: busy, Workers: uint32(most)}, err
}
