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

// parseHAProxy finds the sessions now (scur) of a backend, queue included, and their limit (slim).
func parseHAProxy(answer []byte, backend string) (Reading, error) {
	rows := csv.NewReader(bytes.NewReader(answer))
	rows.FieldsPerRecord, rows.ReuseRecord, rows.LazyQuotes = -1, true, true
	head, err := rows.Read()
	if err != nil || len(head) == 0 || head[0] != "# pxname" {
		return Reading{}, errors.New("the answer is not HAProxy's statistics")
	}
	column := map[string]int{}
	for i, name := range head {
		column[name] = i
	}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return Reading{}, fmt.Errorf("HAProxy has no backend %q", backend)
		}
		if err != nil {
			return Reading{}, fmt.Errorf("HAProxy's statistics: %w", err)
		}
		field := func(name string) string {
			if i, ok := column[name]; ok && i < len(row) {
				return row[i]
			}
			return ""
		}
		if field("# pxname") == backend && field("svname") == "BACKEND" {
			return sessions(field("scur"), field("slim"))
		}
	}
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
